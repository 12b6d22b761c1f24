from django.db import migrations

from jobsplatform.migration import run_file


class Migration(migrations.Migration):
    """Storage of the two small tables that admissions write."""

    dependencies = [("tenants", "0002_audit_chain")]

    operations = [run_file(__file__, "0003_intake_storage", placement="shard")]
