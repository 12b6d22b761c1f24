"""Django's admin as an application of ours: its site has our screens."""

from django.contrib.admin.apps import AdminConfig


class PlatformAdminConfig(AdminConfig):
    default_site = "jobsplatform.frame.Site"
