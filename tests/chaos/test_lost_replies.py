"""S1 and S41: the connection to the database is cut at a commit. No client is told a fate that nobody knows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos.harness import Answer, Platform, Web
from tests.chaos.proxy import AFTER, BEFORE, CommitCutter

pytestmark = pytest.mark.chaos

TRIALS = 20  # of each variant, every day
SLOW_TRIALS = 500
WHEN = pytest.mark.parametrize("when", [BEFORE, AFTER])
COMMIT = b"COMMIT"
_keys = itertools.count(1)


class Edge:
    """A web whose database connections go through the cutter, and one tenant that calls it."""

    def __init__(self, web: Web, cutter: CommitCutter, platform: Platform, token: str) -> None:
        self.web, self.cutter, self.platform, self.token = web, cutter, platform, token

    def call(self, path: str, body: dict[str, Any]) -> Answer:
        return self.web.call("POST", path, body, self.token)

    def cut(self, words: bytes, when: str, path: str, body: dict[str, Any]) -> Answer:
        """The answer to a call whose commit is cut; the cut is asserted."""
        cuts = self.cutter.cuts
        self.cutter.arm(words, when)
        answer = self.call(path, body)
        assert self.cutter.cuts == cuts + 1, (answer, "the statement never passed")
        return answer

    def job(self, **members: Any) -> dict[str, Any]:
        return {"kind": "cut", "queue": "cut", "payload": {}, "request_key": f"key-{next(_keys)}"} | members

    def lease(self) -> dict[str, Any]:
        """A fresh job's lease."""
        job = self.call("/v1/jobs", self.job())
        assert job.status == 201, job
        claimed = self.call("/v1/leases/claim", {"queue": "cut"})
        assert [one["job_id"] for one in claimed.body["leases"]] == [job.body["job_id"]]
        return dict(claimed.body["leases"][0])


def held(lease: dict[str, Any]) -> dict[str, Any]:
    return {"generation": lease["generation"], "lease_token": lease["lease_token"]}


def assert_unknown(answer: Answer) -> None:
    assert answer.status == 503, answer
    assert answer.code == "unknown_outcome", answer
    assert answer.body["outcome"] == "unknown"


@pytest.fixture(scope="module")
def edge(platform: Platform) -> Iterator[Edge]:
    token = platform.tenant("cut", ("createqueue", "cut"))
    cutter = CommitCutter(("127.0.0.1", int(platform.server.address()["PORT"])))
    host, rest = platform.server.url().rsplit("@", 1)
    url = f"{host}@127.0.0.1:{cutter.port}/{rest.split('/', 1)[1]}?sslmode=disable&gssencmode=disable"
    with Web(platform, url, variables={"JOBS_PREPARED_STATEMENTS": "true"}) as web:
        edge = Edge(web, cutter, platform, token)
        edge.call(
            f"/v1/jobs/{edge.lease()['job_id']}/cancel", {}
        )  # the lane and the token are known from here on
        yield edge
    cutter.close()


def run_enqueues(edge: Edge, when: str, trials: int) -> None:
    for _ in range(trials):
        job = edge.job(kind="cut-enqueue", delay_s=86_400)
        assert_unknown(edge.cut(b"-- enqueue:", when, "/v1/jobs", job))
        again = edge.call("/v1/jobs", job)
        assert (again.status, again.body["replayed"]) == ((200, True) if when == AFTER else (201, False))
        made = edge.platform.rows("SELECT count(*) FROM queue_job WHERE request_key = %s", job["request_key"])
        assert made == [(1,)]


def run_completions(edge: Edge, when: str, trials: int) -> None:
    for trial in range(trials):
        lease = edge.lease()
        call, path = held(lease) | {"result": {"trial": trial}}, f"/v1/jobs/{lease['job_id']}/complete"
        assert_unknown(edge.cut(b"-- complete:", when, path, call))
        again = edge.call(path, call)
        assert (again.status, again.body["replayed"]) == (200, when == AFTER)
        third = edge.call(path, call)
        assert third.body == again.body | {"replayed": True}
        shown = edge.web.call("GET", f"/v1/jobs/{lease['job_id']}/result", token=edge.token)
        assert shown.body["finished_at"] == again.body["completed_at"]


@WHEN
def test_an_enqueue_whose_commit_is_cut_is_unknown_and_its_repeat_makes_no_second_job(
    edge: Edge, when: str
) -> None:
    run_enqueues(edge, when, TRIALS)


@WHEN
def test_a_completion_whose_commit_is_cut_is_unknown_and_its_repeat_is_told_the_first(
    edge: Edge, when: str
) -> None:
    run_completions(edge, when, TRIALS // 2)


@pytest.mark.slow
@WHEN
def test_many_commits_are_cut(edge: Edge, when: str) -> None:
    run_enqueues(edge, when, SLOW_TRIALS)
    run_completions(edge, when, SLOW_TRIALS)
    assert edge.platform.fsck() == []


@WHEN
@pytest.mark.parametrize(
    ("verb", "members"),
    [("fail", {"error_class": "transient", "retry_after_s": 3_600}), ("fail", {"error_class": "permanent"}),
     ("release", {"delay_s": 3_600})],
    ids=["fail", "die", "release"],
)  # fmt: skip
def test_an_end_in_a_transaction_is_cut_at_its_commit(
    edge: Edge, when: str, verb: str, members: dict[str, Any]
) -> None:
    lease = edge.lease()
    call, path = held(lease) | members, f"/v1/jobs/{lease['job_id']}/{verb}"
    assert_unknown(edge.cut(COMMIT, when, path, call))
    again = edge.call(path, call)
    assert (again.status, again.body["replayed"]) == (200, when == AFTER), again
    assert edge.call(path, call).body == again.body | {"replayed": True}


@WHEN
def test_a_renewal_is_cut(edge: Edge, when: str) -> None:
    lease = edge.lease()
    call, path = held(lease) | {"lease_s": 60}, f"/v1/jobs/{lease['job_id']}/renew"
    assert_unknown(edge.cut(b"-- renew:", when, path, call))
    assert edge.call(path, call).status == 200
    assert edge.call(f"/v1/jobs/{lease['job_id']}/complete", held(lease)).status == 200


@WHEN
def test_a_claim_with_a_key_is_cut_and_its_repeat_brings_the_same_leases(edge: Edge, when: str) -> None:
    job = edge.call("/v1/jobs", edge.job()).body["job_id"]
    claim = {"queue": "cut", "claim_key": f"claim-{next(_keys)}"}
    answer = edge.cut(COMMIT, when, "/v1/leases/claim", claim)
    if answer.status != 200:  # else they were found by their token on another connection
        assert_unknown(answer)
    leases = edge.call("/v1/leases/claim", claim).body["leases"]
    assert answer.body.get("leases", leases) == leases
    assert [(one["job_id"], one["generation"]) for one in leases] == [(job, 1)]
    assert edge.call("/v1/leases/claim", claim).body["leases"] == leases
    assert edge.call(f"/v1/jobs/{job}/complete", held(leases[0])).status == 200


@WHEN
def test_a_cancel_is_cut(edge: Edge, when: str) -> None:
    job = edge.call("/v1/jobs", edge.job(delay_s=3_600)).body["job_id"]
    assert_unknown(edge.cut(COMMIT, when, f"/v1/jobs/{job}/cancel", {}))
    again = edge.call(f"/v1/jobs/{job}/cancel", {})
    assert again.code == "already_finished" if when == AFTER else again.status == 200
    assert edge.web.call("GET", f"/v1/jobs/{job}", token=edge.token).body["state"] == "cancelled"


def test_an_accepted_job_is_answered_though_it_cannot_be_read_back(edge: Edge) -> None:
    """`unavailable` would say that nothing was done."""
    edge.cutter.arm(b"-- job_views:", BEFORE)
    job = edge.job(delay_s=3_600)
    assert edge.call("/v1/jobs", job).status == 201
    edge.cutter.disarm()
    again = edge.call("/v1/jobs", job)
    assert (again.status, again.body["replayed"]) == (200, True)


def test_leases_whose_payloads_could_not_be_read_are_never_called_unavailable(edge: Edge) -> None:
    job = edge.call("/v1/jobs", edge.job()).body["job_id"]
    claim = {"queue": "cut", "claim_key": f"claim-{next(_keys)}"}
    answer = edge.cut(b"-- claim_details:", BEFORE, "/v1/leases/claim", claim)
    assert answer.code != "unavailable", answer
    leases = edge.call("/v1/leases/claim", claim).body["leases"]
    assert [one["job_id"] for one in leases] == [job]
    assert edge.call(f"/v1/jobs/{job}/complete", held(leases[0])).status == 200


def test_leases_whose_tenant_s_name_could_not_be_read_are_given_all_the_same(edge: Edge) -> None:
    """The control database is not on the way of a claim."""
    made = edge.platform.tenant("unseen", scopes="produce")
    fleet = edge.platform.token("--fleet", "--scopes", "work")
    job = edge.platform.call("POST", "/v1/jobs", edge.job(kind="unseen"), made).body["job_id"]
    edge.cutter.arm(b'FROM "tenants_tenant"', BEFORE)
    claim = {"queue": "cut", "capabilities": ["unseen"]}
    leases = edge.web.call("POST", "/v1/leases/claim", claim, fleet).body["leases"]
    assert [(one["job_id"], one["tenant"]) for one in leases] == [(job, "unseen")]
    assert edge.web.call("POST", f"/v1/jobs/{job}/complete", held(leases[0]), fleet).status == 200
