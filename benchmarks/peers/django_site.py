"""Settings of the two peers that are Django apps."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlparse

from benchmarks.peers.adapter import DSN, WORKERS

_at = urlparse(DSN)
SECRET_KEY = "bench"
USE_TZ = True
LOGGING_CONFIG = None
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _at.path[1:],
        "USER": _at.username,
        "PASSWORD": unquote(_at.password or ""),
        "HOST": _at.hostname,
        "PORT": _at.port,
        "CONN_MAX_AGE": None,
    }
}
if os.environ.get("BENCH_DJANGO") == "q2":
    INSTALLED_APPS = ["django.contrib.contenttypes", "django_q"]
    Q_CLUSTER = {
        "name": "bench",
        "orm": "default",
        "workers": WORKERS,
        "bulk": 50,
        "queue_limit": 500,
        "timeout": 60,
        "retry": 120,
        "poll": 0.2,
        "save_limit": 0,
        "recycle": 1_000_000,
        "catch_up": False,
        "scheduler": False,
    }
else:
    INSTALLED_APPS = ["django_tasks", "django_tasks_db"]
    TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
