from django.apps.registry import Apps
from django.conf import settings
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models.functions import Now

SEQUENCE_BITS = 48

BANDS = [
    {"name": "P0", "weight": 1, "strict": True, "bulk": False},
    {"name": "P1", "weight": 25, "strict": False, "bulk": False},
    {"name": "P2", "weight": 13, "strict": False, "bulk": False},
    {"name": "P3", "weight": 7, "strict": False, "bulk": True},
    {"name": "P4", "weight": 5, "strict": False, "bulk": True},
]


def make(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    queue, _ = apps.get_model("queue", "Queue").objects.get_or_create(
        name="default", defaults={"bands": BANDS, "default_priority": 2, "policy_number": 1}
    )
    policy = {"bands": BANDS, "reserved_share": queue.reserved_share, "cost_model": queue.cost_model}
    apps.get_model("queue", "PolicyVersion").objects.get_or_create(
        queue=queue, number=1, defaults={**policy, "actor": "migration", "in_force_from": Now()}
    )
    for number in settings.SHARD_ALIASES:
        apps.get_model("queue", "IdSpace").objects.get_or_create(
            space=number, defaults={"shard": number, "reason": "first"}
        )


def begin_ids(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """A shard's first id space has its own number: ids never meet those of another shard."""
    for number, alias in settings.SHARD_ALIASES.items():
        if alias == schema_editor.connection.alias:
            schema_editor.execute(
                "SELECT setval('queue_job_id_seq', %s, false)", [number << SEQUENCE_BITS | 1]
            )


class Migration(migrations.Migration):
    """The queue that is always there, and each shard's first id space."""

    dependencies = [("queue", "0002_job_ids_and_storage")]

    operations = [
        migrations.RunPython(make, migrations.RunPython.noop),
        migrations.RunPython(begin_ids, migrations.RunPython.noop, hints={"placement": "shard"}),
    ]
