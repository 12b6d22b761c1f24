from django.db import migrations

from jobsplatform.migration import grant

DESK = ["queue.retry_job", "queue.view_payload", "queue.export_job"]
RIGHTS = {
    "Support": DESK,
    "Operator": [*DESK, "tenants.export_auditentry"],
    "Auditor": ["queue.export_job", "tenants.export_auditentry"],
}


class Migration(migrations.Migration):
    """Who may retry, reveal and export."""

    dependencies = [
        ("dlq", "0004_handling"),
        ("queue", "0009_late_calls"),
        ("tenants", "0006_export_of_the_audit"),
    ]

    operations = [grant(RIGHTS)]
