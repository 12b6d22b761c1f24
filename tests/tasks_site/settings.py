"""The platform's settings, with the site's app and its TASKS."""

from importlib.util import find_spec

from jobsplatform.settings import *  # noqa: F403
from jobsplatform.settings import INSTALLED_APPS as _APPS

FRAMEWORK_APPS = [] if find_spec("django.tasks") else ["django_tasks"]
INSTALLED_APPS = [*_APPS, *FRAMEWORK_APPS, "tests.tasks_site.shop"]
TASKS = {
    "default": {
        "BACKEND": "jobqueue.tasks.QueueBackend",
        "QUEUES": [],
        "OPTIONS": {"TENANT": "acme", "ON_COMMIT": False},
    }
}
