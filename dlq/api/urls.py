"""The routes of the dead-letter desk."""

from django.urls import path

from dlq.api import desk
from jobsplatform.http import route

urlpatterns = [
    path("dlq", route(GET=desk.ListDeadLetters)),
    path("dlq/<str:job_id>", route(GET=desk.ShowDeadLetter)),
    path("dlq/<str:job_id>/corrections", route(POST=desk.Correct)),
    path("dlq/<str:job_id>/redrive", route(POST=desk.RedriveOne)),
]
