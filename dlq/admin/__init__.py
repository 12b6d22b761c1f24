"""The dead-letter desk in the admin, and the admin's first page."""

from dlq.admin import campaigns, home, letters

__all__ = ["campaigns", "home", "letters"]
