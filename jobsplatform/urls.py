"""Every address the platform answers; an application lists its API routes in its own `api/urls.py`."""

from django.contrib import admin
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt
from django.views.generic import RedirectView

from jobsplatform import public, reports
from jobsplatform.http import REPORTS, route

urlpatterns = [
    path("v1/", include("jobqueue.api.urls")),  # first: what is called most
    path("v1/", include("dlq.api.urls")),
    path("v1/", include("tenants.api.urls")),
    path("v1/openapi.yaml", route(GET=public.ShowOpenApi), name="openapi"),
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("livez", route(GET=public.ShowLife)),
    path("readyz", route(GET=public.ShowReadiness)),
    path("metrics", route(GET=public.ShowMetrics)),
    path(REPORTS.lstrip("/"), reports.take_report),
    path("docs", csrf_exempt(public.DocsView.as_view()), name="docs"),
    path("", include("tenants.urls")),
    path("", include("dlq.portal.urls")),
]

handler400 = "jobsplatform.problem.bad_request"
handler403 = "jobsplatform.problem.permission_denied"
handler404 = "jobsplatform.problem.not_found"
handler500 = "jobsplatform.problem.server_error"
