"""The platform's settings and one app more: the handler that is measured."""

from jobsplatform import components
from jobsplatform.settings import *  # noqa: F403

INSTALLED_APPS = [*components.INSTALLED_APPS, "benchmarks.peers.noop"]
