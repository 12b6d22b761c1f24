from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Upkeep finds the keys that came with their slot, to ask another shard whether their job is gone."""

    atomic = False

    dependencies = [("queue", "0013_shard_map")]

    operations = [
        AddIndexConcurrently(
            "requestkey",
            models.Index(
                fields=["id"],
                condition=models.Q(is_moved=True, job_purged_at__isnull=True),
                name="requestkey_moved_idx",
            ),
        ),
    ]
