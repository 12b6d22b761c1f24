"""An id of another tenant takes as long to refuse as one that does not exist."""

from __future__ import annotations

import time
from contextlib import closing
from http.client import HTTPConnection
from statistics import median

import pytest

from tests.chaos.harness import Platform

CALLS = 400
ROUTES = [
    ("GET", ""),
    ("GET", "/attempts"),
    ("GET", "/result"),
    ("GET", "/why"),
    ("POST", "/cancel"),
]


@pytest.fixture(scope="module")
def tokens(platform: Platform) -> tuple[str, str]:
    """Of the tenant whose id it is, and of the one who tries it."""
    return platform.tenant("owner", scopes="produce,read"), platform.tenant("prober", scopes="produce,read")


@pytest.mark.slow
@pytest.mark.parametrize(("method", "suffix"), ROUTES)
def test_a_foreign_id_is_refused_in_the_time_of_an_absent_one(
    platform: Platform, tokens: tuple[str, str], method: str, suffix: str
) -> None:
    """S45: medians within 10 %, of calls that take turns on one connection."""
    owner, prober = tokens
    made = platform.call("POST", "/v1/jobs", {"kind": "nobody.runs", "payload": 1}, owner)
    space, sequence = made.body["job_id"].split("-")
    foreign, absent = made.body["job_id"], f"{space}-{int(sequence) + 1_000_000}"
    taken: dict[str, list[float]] = {foreign: [], absent: []}
    with closing(HTTPConnection("127.0.0.1", platform.port, timeout=30)) as connection:
        for turn in range(CALLS * 2):
            name = (foreign, absent)[turn % 2]
            began = time.perf_counter()
            connection.request(
                method, f"/v1/jobs/{name}{suffix}", headers={"Authorization": f"Bearer {prober}"}
            )
            answer = connection.getresponse()
            answer.read()
            taken[name].append(time.perf_counter() - began)
            assert answer.status == 404
    ours, theirs = median(taken[absent]), median(taken[foreign])
    assert abs(ours - theirs) <= 0.1 * max(ours, theirs), (ours, theirs)
