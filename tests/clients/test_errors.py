"""The client knows every refusal that the platform can give, by a type of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobsplatform import errors as platforms
from jobsplatform.problem import document
from jobsplatform_client import errors as clients


def _below(kind: type[platforms.JobsPlatformError]) -> Iterator[type[platforms.JobsPlatformError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


REFUSALS = sorted(
    {
        one
        for one in _below(platforms.JobsPlatformError)
        if one.__module__ == platforms.__name__ and one.code != "error"
    },
    key=lambda one: one.code,
)


@pytest.mark.parametrize("kind", REFUSALS, ids=lambda kind: kind.code)
def test_each_code_has_a_type(kind: type[platforms.JobsPlatformError]) -> None:
    problem = document(kind("because"))
    refused = clients.refusal(kind.status, problem)
    assert (type(refused).code, refused.problem_code, refused.status) == (kind.code, kind.code, kind.status)
    assert refused.detail == "because"


def test_faults_are_told_place_by_place() -> None:
    problem = document(platforms.Invalid.at("/priority", "It is no band.", "range"))
    assert clients.refusal(400, problem).faults == [clients.Fault("/priority", "range", "It is no band.")]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, clients.BadRequest), (409, clients.Conflict), (418, clients.Refused), (429, clients.LimitReached),
     (502, clients.ServerFault)],
)  # fmt: skip
def test_a_code_from_the_future_has_the_type_of_its_status(status: int, kind: type[clients.Refused]) -> None:
    assert type(clients.refusal(status, {"code": "from_the_future"})) is kind


@pytest.mark.parametrize("code", ["stale_generation", "lease_expired", "already_finished", "result_conflict"])
def test_what_ends_an_attempt_is_one_kind(code: str) -> None:
    assert isinstance(clients.refusal(409, {"code": code}), clients.LeaseLost)


def test_a_lease_that_cannot_grow_is_not_lost() -> None:
    assert not isinstance(clients.refusal(409, {"code": "max_runtime"}), clients.LeaseLost)
