import django.core.validators
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("queue", "0003_default_queue"),
    ]

    operations = [
        migrations.CreateModel(
            name="JobKind",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=64,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9][a-z0-9._-]{0,63}\\Z",
                                "Lower-case letters, digits, dot, hyphen, underscore; up to 64.",
                            )
                        ],
                    ),
                ),
                (
                    "declared",
                    models.JSONField(default=dict, editable=False, help_text="What the handler's code says."),
                ),
                ("declared_by", models.CharField(editable=False, help_text="The handler.", max_length=200)),
                (
                    "payload_schema",
                    models.JSONField(
                        blank=True,
                        help_text="JSON Schema (2020-12) that every payload must satisfy.",
                        null=True,
                    ),
                ),
                (
                    "external_effects",
                    models.BooleanField(
                        blank=True,
                        help_text="Attempts act outside: a lost one is resolved before the next may act.",
                        null=True,
                    ),
                ),
                (
                    "max_attempts",
                    models.SmallIntegerField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(100),
                        ],
                    ),
                ),
                (
                    "backoff_base_s",
                    models.FloatField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0.1),
                            django.core.validators.MaxValueValidator(86400),
                        ],
                    ),
                ),
                (
                    "backoff_cap_s",
                    models.FloatField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0.1),
                            django.core.validators.MaxValueValidator(86400),
                        ],
                    ),
                ),
                (
                    "queue",
                    models.CharField(
                        blank=True,
                        max_length=64,
                        null=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9][a-z0-9._-]{0,63}\\Z",
                                "Lower-case letters, digits, dot, hyphen, underscore; up to 64.",
                            )
                        ],
                    ),
                ),
                (
                    "dependency",
                    models.CharField(
                        blank=True,
                        max_length=64,
                        null=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9][a-z0-9._-]{0,63}\\Z",
                                "Lower-case letters, digits, dot, hyphen, underscore; up to 64.",
                            )
                        ],
                    ),
                ),
                (
                    "cost_hint_s",
                    models.FloatField(
                        blank=True,
                        help_text="What a start is charged until it is measured, where service time counts.",
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0.001),
                            django.core.validators.MaxValueValidator(604800),
                        ],
                    ),
                ),
                ("version", models.BigIntegerField(default=1, editable=False)),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
            ],
            options={
                "verbose_name": "kind",
            },
        ),
        migrations.CreateModel(
            name="KindRow",
            fields=[
                ("kind", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("version", models.BigIntegerField()),
                ("payload_schema", models.TextField(null=True)),
                ("external_effects", models.BooleanField()),
                ("max_attempts", models.SmallIntegerField(null=True)),
                ("backoff_base_s", models.FloatField(null=True)),
                ("backoff_cap_s", models.FloatField(null=True)),
                ("dependency", models.CharField(max_length=64, null=True)),
                ("cost_hint_s", models.FloatField(null=True)),
            ],
        ),
    ]
