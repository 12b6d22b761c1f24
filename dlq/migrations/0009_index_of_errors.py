from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """What all tenants' dead letters of an error are is read along one index, however many lanes they lie in."""

    atomic = False  # CREATE INDEX CONCURRENTLY

    dependencies = [
        ("dlq", "0008_campaign_patch"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="deadletter",
            index=models.Index(
                fields=["fingerprint", "-failed_at", "-job_id"],
                include=["lane_id"],
                name="deadletter_error_list_idx",
            ),
        ),
    ]
