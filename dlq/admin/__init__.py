"""The dead-letter desk and the audit in the admin, and the admin's first page."""

from dlq.admin import audit, campaigns, home, letters, wizard

__all__ = ["audit", "campaigns", "home", "letters", "wizard"]
