"""The address of the door that operators and members have in common."""

from django.urls import path

from tenants import doors

urlpatterns = [path("login/code/", doors.code_page, name="login_code")]
