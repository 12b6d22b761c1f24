"""Every address of the tenants' pages."""

from __future__ import annotations

from django.urls import path

from dlq.portal import jobs, letters, limits, login, overview, people, schedules, start, tokens
from dlq.portal.door import form_page, page

app_name = "portal"

urlpatterns = [
    path("login/", login.LogIn.as_view(), name="login"),
    path("logout/", login.LogOut.as_view(), name="logout"),
    path("t/", login.own_tenants, name="own"),
    path("t/<str:slug>/", page(overview.overview), name="overview"),
    path("t/<str:slug>/jobs/", page(jobs.jobs), name="jobs"),
    path("t/<str:slug>/jobs/<str:job>/", page(jobs.job), name="job"),
    path("t/<str:slug>/jobs/<str:job>/payload/", form_page(jobs.payload), name="payload"),
    path("t/<str:slug>/jobs/<str:job>/cancel/", form_page(jobs.cancel), name="cancel"),
    path("t/<str:slug>/jobs/<str:job>/retry/", form_page(jobs.retry), name="retry"),
    path("t/<str:slug>/dead/", page(letters.letters), name="letters"),
    path("t/<str:slug>/dead/redrive/", form_page(letters.campaign), name="campaign"),
    path("t/<str:slug>/dead/campaigns/<int:campaign>/", form_page(letters.progress), name="progress"),
    path("t/<str:slug>/dead/<str:job>/", page(letters.letter), name="letter"),
    path("t/<str:slug>/dead/<str:job>/correct/", form_page(letters.correct), name="correct"),
    path("t/<str:slug>/dead/<str:job>/redrive/", form_page(letters.redrive), name="redrive"),
    path("t/<str:slug>/limits/", page(limits.limits), name="limits"),
    path("t/<str:slug>/schedules/", page(schedules.schedules), name="schedules"),
    path("t/<str:slug>/schedules/<int:schedule>/", page(schedules.schedule), name="schedule"),
    path("t/<str:slug>/schedules/<int:schedule>/run/", form_page(schedules.run), name="run"),
    path("t/<str:slug>/schedules/<int:schedule>/pause/", form_page(schedules.pause), name="pause"),
    path("t/<str:slug>/schedules/<int:schedule>/resume/", form_page(schedules.resume), name="resume"),
    path("t/<str:slug>/tokens/", page(tokens.tokens), name="tokens"),
    path("t/<str:slug>/tokens/new/", form_page(tokens.new), name="token_new"),
    path("t/<str:slug>/tokens/<str:token>/rotate/", form_page(tokens.rotate), name="token_rotate"),
    path("t/<str:slug>/tokens/<str:token>/revoke/", form_page(tokens.revoke), name="token_revoke"),
    path("t/<str:slug>/members/", page(people.people), name="people"),
    path("t/<str:slug>/start/", page(start.start), name="start"),
]
