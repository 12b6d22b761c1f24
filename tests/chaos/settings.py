"""The project's settings with the chaos runs' handlers, for platforms that tests start."""

from jobsplatform.settings import *  # noqa: F403
from jobsplatform.settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = [*_APPS, "tests.chaos.kinds"]
