"""The routes of jobs, leases and usage."""

from django.urls import path

from jobqueue.api import messages, producing, queues, tenant, working
from jobsplatform.http import route

urlpatterns = [
    path("jobs", route(GET=producing.ListJobs, POST=producing.Enqueue)),
    path("jobs/batch", route(POST=producing.EnqueueBatch)),
    path("jobs/<str:job_id>", route(GET=producing.ShowJob)),
    path("jobs/<str:job_id>/attempts", route(GET=producing.ListAttempts)),
    path("jobs/<str:job_id>/result", route(GET=producing.ShowResult)),
    path("jobs/<str:job_id>/why", route(GET=producing.ShowWhy)),
    path("jobs/<str:job_id>/cancel", route(POST=producing.Cancel)),
    path("jobs/<str:job_id>/renew", route(POST=working.Renew)),
    path("jobs/<str:job_id>/complete", route(POST=working.Complete)),
    path("jobs/<str:job_id>/fail", route(POST=working.Fail)),
    path("jobs/<str:job_id>/release", route(POST=working.Release)),
    path("leases/claim", route(POST=working.Claim)),
    path("leases/settle", route(POST=working.Settle)),
    path("queues", route(GET=queues.ListQueues)),
    path("queues/<str:queue>/messages", route(POST=messages.Send)),
    path("queues/<str:queue>/receive", route(POST=messages.Receive)),
    path("queues/<str:queue>/ack", route(POST=messages.Ack)),
    path("queues/<str:queue>/stats", route(GET=queues.ShowStats)),
    path("queues/<str:queue>/scale", route(GET=queues.ShowScale)),
    path("tenant", route(GET=tenant.ShowTenant)),
]
