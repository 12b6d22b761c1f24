"""The dead-letter desk in the admin."""

from dlq.admin import audit, campaigns, letters, wizard

__all__ = ["audit", "campaigns", "letters", "wizard"]
