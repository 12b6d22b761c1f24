import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    """Somebody looks after an error."""

    dependencies = [("dlq", "0003_groups")]

    operations = [
        migrations.CreateModel(
            name="Handling",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("fingerprint", models.CharField(max_length=16, unique=True)),
                (
                    "assignee",
                    models.CharField(blank=True, help_text="An account; empty: nobody.", max_length=150),
                ),
                ("note", models.TextField()),
                ("actor", models.CharField(max_length=200)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
    ]
