from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Tenants, their tokens, quotas and the audit."""

    name = "tenants"
    verbose_name = "Tenants"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from tenants import permissions

        permissions.listen()
