from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

BANDS = [
    {"name": "P0", "weight": 1, "strict": True, "bulk": False},
    {"name": "P1", "weight": 25, "strict": False, "bulk": False},
    {"name": "P2", "weight": 13, "strict": False, "bulk": False},
    {"name": "P3", "weight": 7, "strict": False, "bulk": True},
    {"name": "P4", "weight": 5, "strict": False, "bulk": True},
]


def make(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    if schema_editor.connection.alias != "default":
        return
    queue = apps.get_model("queue", "Queue")
    queue.objects.get_or_create(name="default", defaults={"bands": BANDS, "default_priority": 2})
    apps.get_model("queue", "IdSpace").objects.get_or_create(
        space=0, defaults={"shard": 0, "reason": "first"}
    )


class Migration(migrations.Migration):
    """The queue that is always there, and the first shard's id space."""

    dependencies = [("queue", "0002_job_ids_and_storage")]

    operations = [migrations.RunPython(make, migrations.RunPython.noop)]
