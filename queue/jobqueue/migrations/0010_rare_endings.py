from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Jobs that were cancelled or expired are found without wading through all that succeeded."""

    atomic = False

    dependencies = [("queue", "0009_late_calls")]

    operations = [
        AddIndexConcurrently(
            "result",
            models.Index(
                fields=["outcome", "-job_id"],
                condition=models.Q(("outcome", "succeeded"), _negated=True),
                name="result_rare_search_idx",
            ),
        )
    ]
