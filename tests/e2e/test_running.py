"""A running platform from outside: parked polls, other clocks, and many tenants at once."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.chaos.harness import Answer, Client, Platform, Web, until

NAME = "jobsplatform-e2e"


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@pytest.fixture(scope="module")
def token(platform: Platform) -> str:
    return platform.tenant("parked")


# S55


@pytest.fixture
def narrow(platform: Platform) -> Iterator[Web]:
    """A web with one database connection, which PostgreSQL knows by its name."""
    url = f"{platform.server.url()}?application_name={NAME}"
    with Web(platform, url, variables={"JOBS_POOL_CONNECTIONS": "1"}) as web:
        yield web


def test_a_parked_claim_is_delivered_at_its_instant_and_holds_no_connection(
    platform: Platform, token: str, narrow: Web
) -> None:
    claims = [{"wait_s": 8, "capabilities": [f"due-{index}"]} for index in range(6)]
    answers: list[tuple[float, Answer]] = []

    def park(claim: dict[str, Any]) -> None:
        answer = narrow.call("POST", "/v1/leases/claim", claim, token)
        answers.append((time.monotonic(), answer))

    job = platform.call("POST", "/v1/jobs", {"kind": "due-0", "payload": 1, "delay_s": 3}, token)
    threads = [threading.Thread(target=park, args=(claim,)) for claim in claims]
    for thread in threads:
        thread.start()
    idle_in_transaction = served = 0
    while not answers:
        idle_in_transaction += _idle_in_transaction(platform)
        served += narrow.call("GET", f"/v1/jobs/{job.body['job_id']}", token=token).status == 200
        time.sleep(0.05)
    late_s = (instant(answers[0][1].body["server_time"]) - instant(job.body["due_at"])).total_seconds()
    assert [lease["job_id"] for lease in answers[0][1].body["leases"]] == [job.body["job_id"]]
    assert 0 <= late_s < 1.5, "0.3 s is the aim; the machine is shared"
    print(f"delivered {late_s:.3f} s after its instant; {served} reads beside it over the one connection")
    assert served > 5
    for thread in threads:
        thread.join(15)
    assert [answer.status for _, answer in answers] == [200] * len(claims)
    assert idle_in_transaction == 0


def _idle_in_transaction(platform: Platform) -> int:
    """Sessions of that web which sit in a transaction for longer than between two of its statements."""
    (count,) = platform.rows(
        """SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND state LIKE 'idle in%%'
        AND state_change < clock_timestamp() - interval '500 ms'""",
        NAME,
    )[0]
    return int(count)


# S53

needs_faketime = pytest.mark.needs("faketime")


def test_no_answer_takes_its_instants_from_the_web_of_another_clock_when_nothing_is_claimed(
    platform: Platform, token: str
) -> None:
    answer = platform.call("POST", "/v1/leases/claim", {"capabilities": ["nobody"]}, token)
    before = platform.rows("SELECT clock_timestamp()")[0][0]
    assert abs((instant(answer.body["server_time"]) - before).total_seconds()) < 5


@needs_faketime
def test_skewed_webs_steal_nothing_and_tell_the_databases_time(platform: Platform, token: str) -> None:
    def web(skew: str) -> Web:
        quiet = {"NO_FAKE_STAT": "1"}  # gunicorn compares the heartbeats of its processes by their files
        return Web(platform, prefix=(str(shutil.which("faketime")), "-f", skew), variables=quiet)

    with web("+120s") as fast, web("-120s") as slow:
        job = slow.call("POST", "/v1/jobs", {"kind": "skew", "payload": 1}, token).body
        lease = platform.call(
            "POST", "/v1/leases/claim", {"capabilities": ["skew"], "lease_s": 30}, token
        ).body["leases"][0]
        assert lease["job_id"] == job["job_id"]
        empty = [
            one.call("POST", "/v1/leases/claim", {"capabilities": ["skew"]}, token).body
            for one in (fast, slow)
        ]
        assert [one["leases"] for one in empty] == [[], []]
        held = {"generation": lease["generation"], "lease_token": lease["lease_token"]}
        renewed = fast.call("POST", f"/v1/jobs/{job['job_id']}/renew", held, token)
        done = slow.call("POST", f"/v1/jobs/{job['job_id']}/complete", held, token)
        assert (renewed.status, done.status) == (200, 200)
        future = fast.call("POST", "/v1/jobs", {"kind": "skew", "payload": 1, "delay_s": 3_600}, token).body
        late = _deadline(fast, token, 60), _deadline(slow, token, -60)
        database = platform.rows("SELECT clock_timestamp()")[0][0]
    told = [
        job["created_at"],
        future["created_at"],
        done.body["completed_at"],
        *(one["server_time"] for one in empty),
    ]
    for text in told:
        assert abs((instant(text) - database).total_seconds()) < 20, told
    assert abs((instant(future["due_at"]) - database).total_seconds() - 3_600) < 20
    assert [answer.code for answer in late] == ["", "deadline_in_past"]


def _deadline(web: Web, token: str, seconds: float) -> Answer:
    """A job with a deadline so far from now, by the true clock."""
    at = datetime.fromtimestamp(time.time() + seconds, UTC).isoformat().replace("+00:00", "Z")
    return web.call("POST", "/v1/jobs", {"kind": "skew", "payload": 1, "deadline": at}, token)


# S135


def test_parallel_calls_of_two_tenants_never_get_each_others_replies(platform: Platform) -> None:
    tenants = ("left", "right")
    tokens = {slug: platform.tenant(slug) for slug in tenants}
    assert len(platform.pids("web-worker")) >= 2

    def ask(task: tuple[str, int]) -> list[str]:
        slug, number = task
        client, wrong, chance = Client(platform.port, tokens[slug]), [], random.Random(number)
        for index in range(8):
            body = {
                "kind": slug,
                "payload": {"of": slug},
                "request_key": f"{number}/{index}",
                "delay_s": chance.choice([0, 60]),
            }
            made = client.call("POST", "/v1/jobs", body)
            answers = [
                made,
                client.call("GET", f"/v1/jobs/{made.body['job_id']}?include=payload"),
                client.call("GET", "/v1/jobs"),
            ]
            answers.append(
                client.call("POST", "/v1/leases/claim", {"limit": 5, "capabilities": list(tenants)})
            )
            wrong += [
                f"{slug}: {answer}"
                for answer in answers
                if answer.status not in (200, 201) or _strangers(answer, slug)
            ]
        client.close()
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert [
            wrong
            for several in pool.map(ask, [(slug, n) for n in range(4) for slug in tenants])
            for wrong in several
        ] == []


def _strangers(answer: Answer, slug: str) -> list[Any]:
    body = answer.body
    items = body.get("items", body.get("leases", [body]))
    return [one for one in items if one["tenant"] != slug or one["kind"] != slug]


def test_readiness_follows_the_database(platform: Platform) -> None:
    until(lambda: platform.call("GET", "/readyz").status == 200, 20)
    assert platform.call("GET", "/livez").status == 200
