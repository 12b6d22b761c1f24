"""The routes of the dead-letter desk."""

from django.urls import path

from dlq.api import bulk, desk
from jobsplatform.http import route

urlpatterns = [
    path("dlq", route(GET=desk.ListDeadLetters)),
    path("dlq/groups", route(GET=bulk.ListGroups)),
    path("dlq/campaigns", route(POST=bulk.CreateCampaign)),
    path("dlq/campaigns/<str:campaign_id>", route(GET=bulk.ShowCampaign)),
    path("dlq/campaigns/<str:campaign_id>/pause", route(POST=bulk.PauseCampaign)),
    path("dlq/campaigns/<str:campaign_id>/resume", route(POST=bulk.ResumeCampaign)),
    path("dlq/campaigns/<str:campaign_id>/abort", route(POST=bulk.AbortCampaign)),
    path("dlq/<str:job_id>", route(GET=desk.ShowDeadLetter)),
    path("dlq/<str:job_id>/corrections", route(POST=desk.Correct)),
    path("dlq/<str:job_id>/redrive", route(POST=desk.RedriveOne)),
    path("dlq/<str:job_id>/fork", route(POST=desk.Fork)),
]
