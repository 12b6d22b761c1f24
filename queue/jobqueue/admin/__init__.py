"""The operators' screens of the queue: a module a subject; Django finds them all through this package."""

from jobqueue.admin import dependencies, inside, jobs, kinds, places, policies, queues, schedules

__all__ = ["dependencies", "inside", "jobs", "kinds", "places", "policies", "queues", "schedules"]
