from django.apps import AppConfig


class DlqConfig(AppConfig):
    """Dead letters, corrections and redrive."""

    name = "dlq"
    verbose_name = "Dead letters"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from dlq import quarantine
        from jobqueue import hooks

        hooks.set_quarantine(quarantine.quarantine)
