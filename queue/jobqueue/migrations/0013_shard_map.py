import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
from django.apps.registry import Apps
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def make(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for number in settings.SHARD_ALIASES:
        apps.get_model("queue", "Shard").objects.get_or_create(number=number)


class Migration(migrations.Migration):
    """Which shard owns which slot of request keys, and the shards that are there."""

    dependencies = [
        ("queue", "0012_queue_tally"),
        ("tenants", "0004_signing_secrets"),
    ]

    operations = [
        migrations.CreateModel(
            name="Ring",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "shards",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.SmallIntegerField(), help_text="Where its slots belong.", size=None
                    ),
                ),
                (
                    "owners",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.SmallIntegerField(), size=None
                    ),
                ),
                (
                    "epochs",
                    django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None),
                ),
                (
                    "is_ready",
                    models.BooleanField(
                        default=True,
                        help_text="False until every shard knows that the slots of all work no longer count for it.",
                    ),
                ),
                ("version", models.BigIntegerField(default=1, editable=False)),
            ],
        ),
        migrations.CreateModel(
            name="Shard",
            fields=[
                ("number", models.SmallIntegerField(primary_key=True, serialize=False)),
                (
                    "state",
                    models.CharField(
                        choices=[("active", "Active"), ("draining", "Draining")],
                        default="active",
                        max_length=10,
                    ),
                ),
                (
                    "is_fenced",
                    models.BooleanField(
                        default=False,
                        help_text="An operator says that it runs nothing: its shares are granted elsewhere.",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="SlotMove",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "slots",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.SmallIntegerField(), size=None
                    ),
                ),
                ("source", models.SmallIntegerField()),
                ("target", models.SmallIntegerField()),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="SlotOwner",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "ring_id", "slot", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("ring_id", models.BigIntegerField()),
                ("slot", models.SmallIntegerField()),
                ("epoch", models.IntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="SlotRing",
            fields=[
                ("ring_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("version", models.BigIntegerField()),
            ],
        ),
        migrations.AddField(
            model_name="requestkey",
            name="is_moved",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="It came with its slot: the job is on another shard.",
            ),
        ),
        migrations.AddField(
            model_name="ring",
            name="queue",
            field=models.OneToOneField(
                blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to="queue.queue"
            ),
        ),
        migrations.AddField(
            model_name="ring",
            name="tenant",
            field=models.OneToOneField(
                blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to="tenants.tenant"
            ),
        ),
        migrations.AddConstraint(
            model_name="shard",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["active", "draining"])), name="shard_state_known"
            ),
        ),
        migrations.AddField(
            model_name="slotmove",
            name="ring",
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="queue.ring"),
        ),
        migrations.AddConstraint(
            model_name="slotowner",
            constraint=models.CheckConstraint(
                condition=models.Q(("slot__gte", 0), ("slot__lt", 4096)), name="slotowner_slot_in_range"
            ),
        ),
        migrations.AddConstraint(
            model_name="ring",
            constraint=models.CheckConstraint(
                condition=models.Q(("queue__isnull", True), ("tenant__isnull", True), _connector="OR"),
                name="ring_of_one_thing",
            ),
        ),
        migrations.AddConstraint(
            model_name="ring",
            constraint=models.UniqueConstraint(
                fields=("queue", "tenant"), name="ring_once_per_thing", nulls_distinct=False
            ),
        ),
        migrations.RunPython(make, migrations.RunPython.noop),
    ]
