"""Errors as problem documents."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import DataError, InterfaceError, InternalError, OperationalError
from django.http import Http404
from rest_framework import exceptions as drf

from jobsplatform import errors, problem
from jobsplatform.errors import FieldError, Invalid, JobsPlatformError, RequestKeyConflict, UnknownOutcome


def subclasses(kind: type[JobsPlatformError]) -> list[type[JobsPlatformError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in subclasses(child))]


NAMED = [
    kind for kind in subclasses(JobsPlatformError) if "code" in vars(kind) and kind is not JobsPlatformError
]


@pytest.fixture
def request_(rf: Any) -> Any:
    request = rf.get("/v1/jobs")
    request.request_id = "req-1"
    return request


@pytest.mark.parametrize("kind", NAMED)
def test_every_error_becomes_a_complete_document(kind: type[JobsPlatformError], request_: Any) -> None:
    response = problem.respond(kind(), request_)
    content = json.loads(response.content)
    assert response["Content-Type"] == "application/problem+json"
    assert {"type", "title", "status", "detail", "instance", "code"} <= content.keys()
    assert (content["status"], content["code"]) == (response.status_code, kind.code)
    assert content["instance"] == "req-1"
    assert content["detail"]


def test_validation_names_each_fault(request_: Any) -> None:
    error = Invalid(
        errors=[FieldError("/kind", "required", "Must be given."), FieldError("/x", "unknown", "No.")]
    )
    assert json.loads(problem.respond(error, request_).content)["errors"] == [
        {"pointer": "/kind", "code": "required", "detail": "Must be given."},
        {"pointer": "/x", "code": "unknown", "detail": "No."},
    ]


def test_further_members_are_shown(request_: Any) -> None:
    assert problem.document(RequestKeyConflict(job_id="0-1"))["job_id"] == "0-1"
    assert problem.document(UnknownOutcome())["outcome"] == "unknown"
    assert "instance" not in problem.document(UnknownOutcome())


def wrapped(cause: Exception) -> InternalError:
    """As Django raises what the driver raised."""
    error = InternalError(*cause.args)
    error.__cause__ = cause
    return error


def test_database_failures_are_unavailable_and_leak_nothing(request_: Any) -> None:
    for failure in (
        OperationalError('connection to server at "10.0.0.1" failed: FATAL: password'),
        InterfaceError("connection already closed"),
        psycopg.OperationalError("SELECT secret"),
        psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT"),
        wrapped(psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT")),
    ):
        response = problem.handle(failure, {"request": request_})
        assert response is not None
        assert response.status_code == 503
        assert response["Retry-After"] == "1"
        assert str(failure).encode() not in response.content


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (Http404(), "not_found"),
        (PermissionDenied(), "insufficient_scope"),
        (SuspiciousOperation(), "invalid"),
        (drf.NotAuthenticated(), "unauthenticated"),
        (drf.ParseError(), "invalid"),
        (drf.MethodNotAllowed("PUT"), "method_not_allowed"),
        (drf.UnsupportedMediaType("a/b"), "unsupported_media_type"),
        (drf.Throttled(3), "rate_limited"),
        (errors.NotDead(), "not_dead"),
    ],
)
def test_errors_of_the_frameworks_have_codes_of_ours(raised: Exception, code: str) -> None:
    error = problem.translated(raised)
    assert error is not None
    assert error.code == code


def test_a_fault_of_ours_is_not_dressed_up(request_: Any) -> None:
    assert problem.translated(RuntimeError("bug")) is None
    assert problem.handle(DataError("bug"), {"request": request_}) is None
