from django.db import migrations

from jobsplatform.migration import grant

# What one may look at: everything but payloads, credentials' secrets and people.
LOOK = [
    *(
        f"queue.view_{name}"
        for name in (
            "queue",
            "policyversion",
            "queuepause",
            "process",
            "jobkind",
            "dependency",
            "dependencystate",
            "schedule",
            "job",
            "readyjob",
            "scheduledjob",
            "lease",
            "attempt",
            "result",
            "lane",
            "laneminute",
        )
    ),
    *(f"dlq.view_{name}" for name in ("deadletter", "correction", "redrive", "campaign")),
    *(f"tenants.view_{name}" for name in ("tenant", "quota")),
]
SUPPORT = [*LOOK, "queue.change_job", "dlq.add_redrive", "dlq.add_correction"]
RIGHTS = {
    "Viewer": LOOK,
    "Support": SUPPORT,
    "Operator": [
        *SUPPORT,
        "queue.pause_queue",
        "queue.change_queue",
        "queue.drain_process",
        "queue.change_lane",
        "queue.change_jobkind",
        "queue.add_dependency",
        "queue.change_dependency",
        "queue.add_schedule",
        "queue.change_schedule",
        "queue.delete_schedule",
        "dlq.add_campaign",
        "dlq.change_campaign",
        "tenants.change_tenant",
        "tenants.view_auditentry",
    ],
    "Quota manager": [*LOOK, "tenants.add_quota", "tenants.change_quota"],
    "Tenant admin": [
        *LOOK,
        "tenants.add_tenant",
        "tenants.change_tenant",
        "tenants.view_membership",
        "tenants.add_membership",
        "tenants.change_membership",
        "tenants.delete_membership",
        "tenants.view_apitoken",
        "tenants.add_apitoken",
        "tenants.change_apitoken",
    ],
    "Auditor": [*LOOK, "tenants.view_auditentry", "tenants.view_membership", "tenants.view_apitoken"],
}


class Migration(migrations.Migration):
    """The groups that people of the platform are put into."""

    dependencies = [
        ("dlq", "0002_campaigns"),
        ("queue", "0008_pauses_and_processes"),
        ("tenants", "0005_login_attempts"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [grant(RIGHTS)]
