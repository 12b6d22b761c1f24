"""The dead-letter desk in the admin."""

from dlq.admin import campaigns, letters

__all__ = ["campaigns", "letters"]
