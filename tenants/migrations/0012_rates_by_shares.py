from django.db import migrations, models

from jobsplatform.migration import run_file


class Migration(migrations.Migration):
    """A rate over several shards counts by shares of its burst."""

    dependencies = [("tenants", "0011_tenant_slugs_on_shards")]

    operations = [
        migrations.AlterField(
            model_name="limitgrant",
            name="resource",
            field=models.CharField(
                choices=[("running", "running"), ("depth", "depth"), ("rate", "rate")], max_length=10
            ),
        ),
        run_file(__file__, "0012_rates_by_shares", placement="shard"),
    ]
