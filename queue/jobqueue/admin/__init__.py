"""The operators' screens of the queue: a module a subject; Django finds them all through this package."""

from jobqueue.admin import (
    dependencies,
    inside,
    jobs,
    kinds,
    places,
    policies,
    processes,
    queue_pages,
    queues,
    schedules,
    shard_pages,
    tenants,
)

__all__ = [
    "dependencies",
    "inside",
    "jobs",
    "kinds",
    "places",
    "policies",
    "processes",
    "queue_pages",
    "queues",
    "schedules",
    "shard_pages",
    "tenants",
]
