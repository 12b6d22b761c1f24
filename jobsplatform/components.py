"""The parts that the platform is put together from: applications, middleware, templates, the API's and the
manual's settings. Nothing here depends on the environment; `settings.py` takes all of it over.
"""

from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent

# Applications

INSTALLED_APPS = [
    "jobsplatform",
    "tenants",
    "jobqueue",
    "dlq",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "jobsplatform.adminconfig.PlatformAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "jobsplatform.http.RequestIdMiddleware",
    "jobsplatform.http.SecurityHeadersMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.middleware.common.CommonMiddleware",
    "jobsplatform.http.ApiMiddleware",  # what follows is for people
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "tenants.doors.CodesMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "jobsplatform.refusals.RefusalsMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

# Pages and people

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "jobsplatform.frame.environment",
            ]
        },
    }
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# HTTP interface

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": [],
    "DEFAULT_AUTHENTICATION_CLASSES": [],  # jobsplatform.http does it, in the contract's order of refusals
    "DEFAULT_PERMISSION_CLASSES": [],
    "EXCEPTION_HANDLER": "jobsplatform.problem.handle",
    "UNAUTHENTICATED_USER": None,
    "UNAUTHENTICATED_TOKEN": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Jobs Platform",
    "DESCRIPTION": "Durable background work for many tenants.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PUBLIC": True,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}
