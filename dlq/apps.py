from django.apps import AppConfig


class DlqConfig(AppConfig):
    """Dead letters, corrections and redrive."""

    name = "dlq"
    verbose_name = "Dead letters"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from dlq import groups, metrics, pacing, quarantine  # noqa: F401  (registers what is measured)
        from jobqueue import hooks
        from jobsplatform.loop import Pass

        hooks.set_quarantine(quarantine.quarantine)
        hooks.add_pass(lambda: Pass("campaigns", pacing.advance, interval_s=0.25))
        hooks.add_pass(lambda: Pass("watch_growth", groups.GrowthAlarm().watch, interval_s=15))
