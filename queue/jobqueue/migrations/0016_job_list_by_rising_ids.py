from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """A tenant's jobs by rising ids: new ones go to the right end, where pages are filled. Lists read it backwards."""

    atomic = False

    dependencies = [("queue", "0015_dependency_shares")]

    operations = [
        AddIndexConcurrently("job", models.Index(fields=["tenant_id", "id"], name="job_tenant_ids_list_idx")),
        RemoveIndexConcurrently("job", "job_tenant_list_idx"),
    ]
