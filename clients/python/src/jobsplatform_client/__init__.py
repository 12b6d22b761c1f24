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
from jobsplatform_client.worker.context import AsyncJobContext, JobContext
from jobsplatform_client.worker.outcomes import (
    Done,
    NotDone,
    Overload,
    Permanent,
    Release,
    StillUnknown,
    Transient,
    Uncertain,
)
from jobsplatform_client.worker.tasks import AsyncWorker
from jobsplatform_client.worker.threads import Worker

__all__ = [
    "ABSENT",
    "Accepted",
    "AsyncClient",
    "AsyncJobContext",
    "AsyncMessageQueue",
    "AsyncWorker",
    "BatchIncomplete",
    "Client",
    "Done",
    "Job",
    "JobContext",
    "JobFilter",
    "JobsPlatformError",
    "Lease",
    "LeaseLost",
    "Message",
    "MessageQueue",
    "NewJob",
    "NotDone",
    "Overload",
    "Permanent",
    "Refused",
    "Release",
    "Retry",
    "StillUnknown",
    "Transient",
    "Uncertain",
    "Unreachable",
    "Worker",
]
