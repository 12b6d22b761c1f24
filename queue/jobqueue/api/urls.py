"""The routes of jobs, leases, schedules and usage."""

from django.urls import path

from jobqueue.api import messages, producing, queues, schedules, tenant, working
from jobsplatform.http import route

urlpatterns = [  # tried one after the other: what is called most stands first
    path("leases/claim", route(POST=working.Claim)),
    path("leases/settle", route(POST=working.Settle)),
    path("jobs", route(GET=producing.ListJobs, POST=producing.Enqueue)),
    path("jobs/batch", route(POST=producing.EnqueueBatch)),
    path("jobs/<str:job_id>/complete", route(POST=working.Complete)),
    path("jobs/<str:job_id>/renew", route(POST=working.Renew)),
    path("jobs/<str:job_id>", route(GET=producing.ShowJob)),
    path("jobs/<str:job_id>/attempts", route(GET=producing.ListAttempts)),
    path("jobs/<str:job_id>/result", route(GET=producing.ShowResult)),
    path("jobs/<str:job_id>/why", route(GET=producing.ShowWhy)),
    path("jobs/<str:job_id>/cancel", route(POST=producing.Cancel)),
    path("jobs/<str:job_id>/fail", route(POST=working.Fail)),
    path("jobs/<str:job_id>/release", route(POST=working.Release)),
    path("schedules", route(GET=schedules.ListSchedules, POST=schedules.CreateSchedule)),
    path(
        "schedules/<str:schedule_id>",
        route(GET=schedules.ShowSchedule, PATCH=schedules.ChangeSchedule, DELETE=schedules.DeleteSchedule),
    ),
    path("schedules/<str:schedule_id>/run-now", route(POST=schedules.RunNow)),
    path("schedules/<str:schedule_id>/next", route(GET=schedules.ShowNext)),
    path("queues", route(GET=queues.ListQueues)),
    path("queues/<str:queue>/messages", route(POST=messages.Send)),
    path("queues/<str:queue>/receive", route(POST=messages.Receive)),
    path("queues/<str:queue>/ack", route(POST=messages.Ack)),
    path("queues/<str:queue>/stats", route(GET=queues.ShowStats)),
    path("queues/<str:queue>/scale", route(GET=queues.ShowScale)),
    path("tenant", route(GET=tenant.ShowTenant)),
]
