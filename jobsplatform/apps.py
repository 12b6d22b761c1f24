"""The project as an application: it has no models, only system checks and shared commands."""

from django.apps import AppConfig


class JobsPlatformConfig(AppConfig):
    """Registers the checks of the settings and of the databases."""

    name = "jobsplatform"
    verbose_name = "Jobs Platform"

    def ready(self) -> None:
        from jobsplatform import checks  # noqa: F401  (registers itself)
