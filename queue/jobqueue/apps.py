from django.apps import AppConfig


class JobqueueConfig(AppConfig):
    """The queue itself. The import name is `jobqueue`, the label `queue` (ADR 0001)."""

    name = "jobqueue"
    label = "queue"
    verbose_name = "Queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from jobqueue import (  # noqa: F401  (registers the system checks and what is measured)
            checks,
            dependencies,
            hub,
            metrics,
            policies,
        )
        from jobqueue.shards import register, shares
        from jobsplatform import database
        from tenants import access, registry

        database.read_spaces_by(register.later_spaces)
        registry.after_pushes(shares.balance_tenant)
        dependencies.after_pushes(shares.balance_dependency)
        access.knows_queues(policies.unknown)
        hub.tell_others()
