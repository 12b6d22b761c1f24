from django.db import migrations

from jobsplatform.migration import run_file


class Migration(migrations.Migration):
    """Storage of the table that refusals are noted in."""

    dependencies = [("tenants", "0007_quota_history_and_usage")]

    operations = [run_file(__file__, "0008_refusal_storage", placement="shard")]
