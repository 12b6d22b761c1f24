from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Dead letters are counted, up to a bound, and dated by reason: by index."""

    atomic = False  # CREATE INDEX CONCURRENTLY

    dependencies = [
        ("dlq", "0005_rights_of_the_desk"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="deadletter",
            index=models.Index(fields=["reason", "failed_at"], name="deadletter_reason_count_idx"),
        ),
    ]
