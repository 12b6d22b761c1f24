from django.db import migrations

from jobsplatform.migration import run_file


class Migration(migrations.Migration):
    """The audit's hash, and the rule that it only grows."""

    dependencies = [("tenants", "0001_initial")]

    operations = [run_file(__file__, "0002_audit_chain", placement="both")]
