"""Logging: one JSON object a line on stderr, from structlog and from the standard library alike."""

from __future__ import annotations

from typing import Any

import structlog
from structlog.types import Processor

from jobsplatform import tracing

_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    tracing.add_attempt,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    structlog.processors.format_exc_info,
]


def configure(level: str) -> dict[str, Any]:
    """Set structlog up and return the matching value for Django's LOGGING."""
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "json": {
                "()": structlog.stdlib.ProcessorFormatter,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.JSONRenderer(),
                ],
                "foreign_pre_chain": _SHARED,
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": [], "level": "INFO", "propagate": True},
            "django.server": {"handlers": [], "level": "WARNING", "propagate": True},
            "django.request": {"level": "ERROR"},  # refusals (4xx) are answers, not events of ours
            "psycopg.pool": {"level": "ERROR"},  # the loops say once what the pool would say at every attempt
        },
    }
