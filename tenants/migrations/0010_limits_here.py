from django.db import migrations

from jobsplatform.migration import run_file


class Migration(migrations.Migration):
    """A limit over several shards counts by its share on each."""

    dependencies = [("tenants", "0009_limit_shares")]

    operations = [run_file(__file__, "0010_limits_here", placement="shard")]
