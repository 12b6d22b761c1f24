"""Client of the jobs platform: enqueue safely, work leases, send and receive messages; sync and async."""

from jobsplatform_client.aio import AsyncClient, AsyncMessageQueue
from jobsplatform_client.client import Client, MessageQueue
from jobsplatform_client.errors import (
    BatchIncomplete,
    JobsPlatformError,
    LeaseLost,
    Refused,
    Unreachable,
)
from jobsplatform_client.retry import Retry
from jobsplatform_client.values import ABSENT, Accepted, Job, JobFilter, Lease, Message, NewJob

__all__ = [
    "ABSENT",
    "Accepted",
    "AsyncClient",
    "AsyncMessageQueue",
    "BatchIncomplete",
    "Client",
    "Job",
    "JobFilter",
    "JobsPlatformError",
    "Lease",
    "LeaseLost",
    "Message",
    "MessageQueue",
    "NewJob",
    "Refused",
    "Retry",
    "Unreachable",
]
