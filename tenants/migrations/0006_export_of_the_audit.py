from django.db import migrations


class Migration(migrations.Migration):
    """Who may take the audit away is asked."""

    dependencies = [("tenants", "0005_login_attempts")]

    operations = [
        migrations.AlterModelOptions(
            name="auditentry",
            options={
                "permissions": [("export_auditentry", "Can export the audit")],
                "verbose_name_plural": "audit entries",
            },
        ),
    ]
