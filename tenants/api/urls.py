"""The routes of tokens."""

from django.urls import path

from jobsplatform.http import route
from tenants.api import tokens

urlpatterns = [
    path("tokens", route(GET=tokens.ListTokens, POST=tokens.CreateToken)),
    path("tokens/<str:token_id>/rotate", route(POST=tokens.RotateToken)),
    path("tokens/<str:token_id>", route(DELETE=tokens.EndToken)),
]
