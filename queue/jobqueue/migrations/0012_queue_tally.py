from django.db import migrations, models

from jobsplatform.database import SHARD
from jobsplatform.migration import run_file


class Migration(migrations.Migration):
    """What has happened in each band of a queue, for metrics. It counts from this migration on."""

    dependencies = [
        ("queue", "0011_dependency_holds_end"),
    ]

    operations = [
        migrations.CreateModel(
            name="QueueTally",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "queue_id", "priority", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("queue_id", models.BigIntegerField()),
                ("priority", models.SmallIntegerField()),
                ("started", models.BigIntegerField(db_default=0)),
                ("firsts", models.BigIntegerField(db_default=0, help_text="Of the starts: first attempts.")),
                (
                    "promoted",
                    models.BigIntegerField(db_default=0, help_text="Retries that were let through."),
                ),
                ("succeeded", models.BigIntegerField(db_default=0)),
                ("failed", models.BigIntegerField(db_default=0)),
                ("retried", models.BigIntegerField(db_default=0)),
                ("lease_lost", models.BigIntegerField(db_default=0)),
                ("dead", models.BigIntegerField(db_default=0)),
                ("service_ms", models.BigIntegerField(db_default=0)),
            ],
        ),
        run_file(__file__, "0012_queue_tally", placement=SHARD),
    ]
