"""All settings, and the only reader of the environment. `.env.example` is generated from this file.

A knob's line says its unit, default and bounds; `checks.py` refuses unsafe values before anything starts.
"""

from pathlib import Path
from typing import Any

import environ

from jobsplatform import addresses, embedded, logs, secretfiles
from jobsplatform.components import AUTH_PASSWORD_VALIDATORS as AUTH_PASSWORD_VALIDATORS
from jobsplatform.components import BASE_DIR as BASE_DIR
from jobsplatform.components import INSTALLED_APPS as INSTALLED_APPS
from jobsplatform.components import MIDDLEWARE as MIDDLEWARE
from jobsplatform.components import REST_FRAMEWORK as REST_FRAMEWORK
from jobsplatform.components import SPECTACULAR_SETTINGS as SPECTACULAR_SETTINGS
from jobsplatform.components import TEMPLATES as TEMPLATES

env = environ.FileAwareEnv()  # NAME_FILE=/path is read too, for mounted secrets
environ.Env.read_env(BASE_DIR / ".env")

# Platform

_DATA = str(BASE_DIR / ".data")
_LOOPBACK = ["localhost", "127.0.0.1", "[::1]"]

DATA = Path(env("JOBSPLATFORM_DATA", default=_DATA)).absolute()  # folder of all that this machine keeps
DEBUG = env.bool("JOBSPLATFORM_DEBUG", default=False)  # tracebacks in pages; loopback hosts only
ALLOWED_HOSTS = env.list("JOBSPLATFORM_ALLOWED_HOSTS", default=_LOOPBACK)  # host names, commas
CSRF_TRUSTED_ORIGINS = env.list("JOBSPLATFORM_TRUSTED_ORIGINS", default=[])  # https://host of a proxy, commas
HTTPS = env.bool("JOBSPLATFORM_HTTPS", default=False)  # TLS ends at a proxy that sets X-Forwarded-Proto
ENVIRONMENT = env("JOBSPLATFORM_ENVIRONMENT", default="development")  # any word; the admin shows it
RELEASE = env("JOBSPLATFORM_RELEASE", default="")  # what this code is called; empty: its git commit
LOG_LEVEL = env("JOBSPLATFORM_LOG_LEVEL", default="INFO")  # DEBUG, INFO, WARNING or ERROR
SECRET_KEY = env("JOBSPLATFORM_SECRET_KEY", default="")  # ≥ 50 characters; empty: made once in DATA
PEPPER = env("JOBSPLATFORM_TOKEN_PEPPER", default="")  # ≥ 32 characters; empty: made once in DATA
DATABASE_URL = env("JOBSPLATFORM_DATABASE_URL", default="")  # postgresql://…, server ≥ 15; empty: embedded
_SHARDS = env("JOBSPLATFORM_SHARDS", default="")  # URLs, or names beside the default; empty: one, in it

# All hosts of one platform need the same two secrets: with a real server both must be named (E003).
SECRETS_NAMED = bool(SECRET_KEY and PEPPER)
SECRET_KEY = SECRET_KEY or secretfiles.read_or_make(DATA / "secret_key")
TOKEN_PEPPER = (PEPPER or secretfiles.read_or_make(DATA / "token_pepper")).encode()

# Databases

JOBS_POOL_CONNECTIONS = env.int("JOBS_POOL_CONNECTIONS", default=32)  # 1..500 per process and database
JOBS_POOL_WAIT_SECONDS = env.int("JOBS_POOL_WAIT_SECONDS", default=3)  # 1..30 for a free connection, then 503
JOBS_CONNECT_SECONDS = env.int("JOBS_CONNECT_SECONDS", default=5)  # 1..30 per attempt and host
JOBS_RECONNECT_SECONDS = env.int("JOBS_RECONNECT_SECONDS", default=2)  # 1..60 longest wait between attempts
JOBS_STANDBY_REQUIRED = env.bool("JOBS_STANDBY_REQUIRED", default=False)  # not ready without a standby
_DIRECT = not DATABASE_URL
JOBS_PREPARED_STATEMENTS = env.bool("JOBS_PREPARED_STATEMENTS", default=_DIRECT)  # false behind a pooler


def _database(place: str) -> dict[str, Any]:
    """The DATABASES entry of a URL, or of a database's name on the default server."""
    if "://" in place:
        entry = addresses.entry(place)
    elif DATABASE_URL:
        entry = {**addresses.entry(DATABASE_URL), "NAME": place}
    else:
        entry = embedded.Server(DATA).address(place)
    options = {
        "connect_timeout": JOBS_CONNECT_SECONDS,
        "application_name": "jobsplatform",
        "prepare_threshold": 1 if JOBS_PREPARED_STATEMENTS else None,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        "pool": {
            "min_size": 0,
            "max_size": JOBS_POOL_CONNECTIONS,
            "timeout": JOBS_POOL_WAIT_SECONDS,
            "max_idle": 120,
            "reconnect_timeout": JOBS_POOL_WAIT_SECONDS,
        },
    }
    return {
        "ENGINE": "jobsplatform.postgresql",
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,
        "DISABLE_SERVER_SIDE_CURSORS": True,  # they would need one connection for a whole session
        **entry,
        "OPTIONS": {**options, **entry.get("OPTIONS", {})},
    }


SHARDS = addresses.split(_SHARDS) or ([] if DATABASE_URL else embedded.Server(DATA).shards())
SHARD_ALIASES = {number: f"shard{number}" for number in range(len(SHARDS))} or {0: "default"}
DATABASES = {
    "default": _database(DATABASE_URL or embedded.DATABASE),
    **{f"shard{number}": _database(place) for number, place in enumerate(SHARDS)},
}
DATABASE_ROUTERS = ["jobsplatform.database.Router"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Processes

JOBS_WEB_PROCESSES = env.int("JOBS_WEB_PROCESSES", default=2)  # 1..64 of gunicorn
JOBS_WEB_THREADS = env.int("JOBS_WEB_THREADS", default=32)  # 4..512 per process; a parked poll holds none
JOBS_PARKED_MAX = env.int("JOBS_PARKED_MAX", default=2500)  # 0..50000 long polls a process
JOBS_NOTIFICATIONS = env.bool("JOBS_NOTIFICATIONS", default=True)  # of ready work; false: poll only
JOBS_DRAIN_SECONDS = env.int("JOBS_DRAIN_SECONDS", default=25)  # 20..300 for open requests after SIGTERM
JOBS_PROMOTE_PER_SECOND = env.int("JOBS_PROMOTE_PER_SECOND", default=2000)  # 100..100000 a dispatcher
JOBS_REAP_PER_SECOND = env.int("JOBS_REAP_PER_SECOND", default=1000)  # 100..100000 lapsed, a reaper
JOBS_POST_LOOPBACK = env.bool("JOBS_POST_LOOPBACK", default=False)  # http.post may call this machine
JOBS_DEMO_FOLDERS = env.list("JOBS_DEMO_FOLDERS", default=["docs", "README.md"])  # the demo reads these

# Applications: components.py

ROOT_URLCONF = "jobsplatform.urls"
WSGI_APPLICATION = "jobsplatform.wsgi.application"
APPEND_SLASH = False  # API paths have none; the admin redirects by itself
LOGIN_URL = "admin:login"
CSRF_FAILURE_VIEW = "jobsplatform.problem.csrf_failure"

# Security

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_AGE = 12 * 3600  # seconds: one shift of an operator
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^(livez|readyz)$"]  # probes ask the process, not the proxy
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if HTTPS and not DEBUG else 0
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 * 1024 * 1024 + 64 * 1024  # bytes: the largest batch and its frame
JOBS_STAFF_CODES_REQUIRED = env.bool("JOBS_STAFF_CODES_REQUIRED", default=False)  # staff log in with codes

# Language, time, files, logs

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True  # files are served from where they lie: no collectstatic before the first start
LOGGING = logs.configure(LOG_LEVEL)
