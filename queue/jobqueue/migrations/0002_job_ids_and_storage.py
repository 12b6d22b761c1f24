from django.db import migrations

from jobsplatform.migration import run_file


class Migration(migrations.Migration):
    """Job ids, storage of the hot tables, and the rules that hold for every writer."""

    dependencies = [("queue", "0001_initial")]

    operations = [run_file(__file__, "0002_job_ids_and_storage", placement="shard")]
