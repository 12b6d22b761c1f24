"""The project's settings with the test app's handlers, for worker processes that tests start."""

from jobsplatform.settings import *  # noqa: F403
from jobsplatform.settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = [*_APPS, "tests.jobqueue.worker.app"]
