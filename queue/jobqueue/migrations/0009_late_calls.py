from django.db import migrations, models


class Migration(migrations.Migration):
    """What came too late is told; who may retry, export and reveal is asked."""

    dependencies = [("queue", "0008_pauses_and_processes")]

    operations = [
        migrations.CreateModel(
            name="LateCall",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "job_id",
                        "generation",
                        "verb",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("job_id", models.BigIntegerField()),
                ("generation", models.IntegerField()),
                (
                    "verb",
                    models.CharField(help_text="What was asked: complete, fail or release.", max_length=10),
                ),
                ("code", models.CharField(help_text="The refusal's.", max_length=32)),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.AlterModelOptions(
            name="job",
            options={
                "permissions": [
                    ("retry_job", "Can let a waiting job start at once"),
                    ("export_job", "Can export lists of jobs"),
                    ("view_payload", "Can reveal payloads"),
                ]
            },
        ),
    ]
