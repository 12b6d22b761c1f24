import django.core.validators
import django.db.models.functions.datetime
from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models

from jobsplatform.migration import run_file


class Migration(migrations.Migration):
    """Dependencies, retry budgets, and lanes that poisons gate. Indexes of live tables are built beside their use."""

    atomic = False  # for the concurrent indexes

    dependencies = [
        ("queue", "0006_schedules"),
    ]

    operations = [
        migrations.CreateModel(
            name="Dependency",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "max_running",
                    models.IntegerField(
                        blank=True, null=True, validators=[django.core.validators.MinValueValidator(1)]
                    ),
                ),
                (
                    "rate_per_s",
                    models.FloatField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0.001),
                            django.core.validators.MaxValueValidator(1000000),
                        ],
                    ),
                ),
                (
                    "rate_burst",
                    models.IntegerField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000000),
                        ],
                    ),
                ),
                (
                    "breaker_share",
                    models.FloatField(
                        blank=True,
                        db_default=0.5,
                        default=0.5,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0.01),
                            django.core.validators.MaxValueValidator(1),
                        ],
                    ),
                ),
                (
                    "breaker_calls",
                    models.IntegerField(
                        db_default=20,
                        default=20,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000000),
                        ],
                    ),
                ),
                (
                    "breaker_window_s",
                    models.IntegerField(
                        db_default=60,
                        default=60,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(3600),
                        ],
                    ),
                ),
                (
                    "probe_after_s",
                    models.IntegerField(
                        db_default=30,
                        default=30,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(3600),
                        ],
                    ),
                ),
                (
                    "ramp_per_s",
                    models.IntegerField(
                        blank=True,
                        db_default=50,
                        default=50,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000000),
                        ],
                    ),
                ),
                (
                    "ramp_s",
                    models.IntegerField(
                        db_default=60,
                        default=60,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(3600),
                        ],
                    ),
                ),
                ("is_held_open", models.BooleanField(db_default=False, default=False, editable=False)),
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
                    "probe_shard",
                    models.SmallIntegerField(
                        editable=False,
                        help_text="The one shard that may probe while the breaker is half open.",
                        null=True,
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
                "verbose_name_plural": "dependencies",
            },
        ),
        migrations.CreateModel(
            name="DependencyDelta",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("dependency", models.CharField(max_length=64)),
                ("at", models.DateTimeField()),
                ("started", models.IntegerField(db_default=0)),
                ("succeeded", models.IntegerField(db_default=0)),
                ("failed", models.IntegerField(db_default=0)),
                ("overloaded", models.IntegerField(db_default=0)),
                (
                    "overloaded_from",
                    models.DateTimeField(
                        help_text="When the latest of the overloaded calls began.", null=True
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="DependencyState",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "max_running",
                    models.IntegerField(
                        blank=True, null=True, validators=[django.core.validators.MinValueValidator(1)]
                    ),
                ),
                (
                    "rate_per_s",
                    models.FloatField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0.001),
                            django.core.validators.MaxValueValidator(1000000),
                        ],
                    ),
                ),
                (
                    "rate_burst",
                    models.IntegerField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000000),
                        ],
                    ),
                ),
                (
                    "breaker_share",
                    models.FloatField(
                        blank=True,
                        db_default=0.5,
                        default=0.5,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0.01),
                            django.core.validators.MaxValueValidator(1),
                        ],
                    ),
                ),
                (
                    "breaker_calls",
                    models.IntegerField(
                        db_default=20,
                        default=20,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000000),
                        ],
                    ),
                ),
                (
                    "breaker_window_s",
                    models.IntegerField(
                        db_default=60,
                        default=60,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(3600),
                        ],
                    ),
                ),
                (
                    "probe_after_s",
                    models.IntegerField(
                        db_default=30,
                        default=30,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(3600),
                        ],
                    ),
                ),
                (
                    "ramp_per_s",
                    models.IntegerField(
                        blank=True,
                        db_default=50,
                        default=50,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000000),
                        ],
                    ),
                ),
                (
                    "ramp_s",
                    models.IntegerField(
                        db_default=60,
                        default=60,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(3600),
                        ],
                    ),
                ),
                ("is_held_open", models.BooleanField(db_default=False, default=False, editable=False)),
                ("name", models.CharField(max_length=64, unique=True)),
                ("version", models.BigIntegerField(db_default=0)),
                (
                    "breaker",
                    models.CharField(
                        choices=[("closed", "closed"), ("open", "open"), ("half_open", "half open")],
                        db_default="closed",
                        max_length=9,
                    ),
                ),
                (
                    "counted_from",
                    models.DateTimeField(help_text="Calls before do not count for the breaker.", null=True),
                ),
                ("probe_at", models.DateTimeField(help_text="Open until then.", null=True)),
                ("probe_job_id", models.BigIntegerField(null=True)),
                ("probe_generation", models.IntegerField(null=True)),
                (
                    "ramp_from",
                    models.DateTimeField(help_text="When it recovered; null: not ramping.", null=True),
                ),
                ("limit_now", models.FloatField(help_text="Between 1 and max_running.", null=True)),
                ("halved_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="DependencyTally",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "dependency", "bucket", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("dependency", models.CharField(max_length=64)),
                ("bucket", models.DateTimeField(help_text="Where its tenth of a second begins.")),
                ("started", models.IntegerField()),
                ("succeeded", models.IntegerField()),
                ("failed", models.IntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="PoisonMark",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("tenant_id", models.BigIntegerField()),
                ("kind", models.CharField(max_length=64)),
                ("job_id", models.BigIntegerField()),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="QueueSecond",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "queue_id", "second", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("queue_id", models.BigIntegerField()),
                ("second", models.DateTimeField()),
                ("firsts", models.BigIntegerField()),
                ("retries", models.BigIntegerField()),
            ],
        ),
        migrations.AddField(
            model_name="lane",
            name="gated_until",
            field=models.DateTimeField(help_text="Poisons hold it back until then.", null=True),
        ),
        migrations.AddField(
            model_name="lanedelta",
            name="firsts",
            field=models.IntegerField(db_default=0, help_text="Of the starts: first attempts."),
        ),
        migrations.AddField(
            model_name="lanedelta",
            name="promoted",
            field=models.IntegerField(db_default=0, help_text="Retries that were let through."),
        ),
        migrations.AddField(
            model_name="policyrow",
            name="retry_budget_burst",
            field=models.IntegerField(db_default=100),
        ),
        migrations.AddField(
            model_name="policyrow",
            name="retry_budget_share",
            field=models.FloatField(db_default=0.2),
        ),
        migrations.AddField(
            model_name="policyrow",
            name="retry_budget_window_s",
            field=models.IntegerField(db_default=60),
        ),
        migrations.AddField(
            model_name="scheduledjob",
            name="budget_queue_id",
            field=models.BigIntegerField(
                help_text="The queue whose retry budget it needs; null: none.", null=True
            ),
        ),
        AddIndexConcurrently(
            model_name="lane",
            index=models.Index(
                condition=models.Q(("dependency", ""), _negated=True),
                fields=["dependency", "queue_id"],
                name="lane_dependency_count_idx",
            ),
        ),
        AddIndexConcurrently(
            model_name="scheduledjob",
            index=models.Index(
                condition=models.Q(("budget_queue_id__isnull", True)),
                fields=["due_at"],
                name="scheduled_free_promote_idx",
            ),
        ),
        AddIndexConcurrently(
            model_name="scheduledjob",
            index=models.Index(
                condition=models.Q(("budget_queue_id__isnull", False)),
                fields=["budget_queue_id", "due_at"],
                name="scheduled_retry_promote_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="dependencydelta",
            index=models.Index(fields=["dependency", "at"], name="dependencydelta_judge_idx"),
        ),
        migrations.AddConstraint(
            model_name="dependencystate",
            constraint=models.CheckConstraint(
                condition=models.Q(("breaker__in", ["closed", "open", "half_open"])),
                name="dependency_breaker_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="dependencystate",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("breaker", "open"), _negated=True), ("probe_at__isnull", False), _connector="OR"
                ),
                name="dependency_open_until",
            ),
        ),
        migrations.AddConstraint(
            model_name="dependencystate",
            constraint=models.CheckConstraint(
                condition=models.Q(("probe_job_id__isnull", True), ("breaker", "half_open"), _connector="OR"),
                name="dependency_probe_half_open",
            ),
        ),
        migrations.AddIndex(
            model_name="dependencytally",
            index=models.Index(fields=["bucket"], name="dependencytally_purge_idx"),
        ),
        migrations.AddIndex(
            model_name="poisonmark",
            index=models.Index(fields=["tenant_id", "kind", "at"], name="poisonmark_gate_idx"),
        ),
        migrations.AddIndex(
            model_name="queuesecond",
            index=models.Index(fields=["second"], name="queuesecond_purge_idx"),
        ),
        RemoveIndexConcurrently(model_name="scheduledjob", name="scheduled_due_promote_idx"),
        run_file(__file__, "0007_dependencies", placement="shard"),
    ]
