from django.apps import AppConfig


class JobqueueConfig(AppConfig):
    """The queue itself. The import name is `jobqueue`, the label `queue` (ADR 0001)."""

    name = "jobqueue"
    label = "queue"
    verbose_name = "Queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from jobqueue import checks, hub, metrics, policies  # noqa: F401  (registers the system checks and what is measured)
        from jobqueue.shards import register, shares
        from jobsplatform import database
        from tenants import access, registry

        database.read_spaces_by(register.later_spaces)
        registry.over_shards(register.shards_of_tenant, shares.balance_tenant)
        access.knows_queues(policies.unknown)
        hub.tell_others()
