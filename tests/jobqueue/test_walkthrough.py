"""The worked example: a worker stalls after calling a provider, another resolves the call, one effect is made.

`docs/walkthrough.md` shows the same story with its output. Here it is played again, and the two must agree but for
instants, tokens and numbers that differ from run to run.
"""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jobqueue import kinds, upkeep
from tests import api_cast, cast

pytestmark = pytest.mark.django_db

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "walkthrough.md"
KIND = "payment.capture"
LEASE_S = 1
WIDTH = 116
SHOWN = (
    "job_id",
    "generation",
    "attempt",
    "operation_id",
    "reconcile",
    "earlier_generations",
    "redrive_generation",
)


class Provider(ThreadingHTTPServer):
    """Captures a payment once per Idempotency-Key, and counts how often it was called."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Capture)
        self.calls: list[str] = []
        self.effects: dict[str, str] = {}

    def capture(self, key: str) -> tuple[int, dict[str, Any]]:
        self.calls.append(key)
        is_new = key not in self.effects
        self.effects.setdefault(key, f"ch_{len(self.effects) + 1}")
        return (201 if is_new else 200), {"charge": self.effects[key], "replayed": not is_new}


class _Capture(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status, members = self.server.capture(self.headers["Idempotency-Key"])
        body = json.dumps(members).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def provider() -> Iterator[Provider]:
    server = Provider()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


class Story:
    """Plays the example over HTTP and keeps what was said, one block a step."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.blocks: list[list[str]] = []
        self.producer, self.worker = api_cast.caller("acme", "produce"), api_cast.caller("acme", "work")
        self.reader, self.operator = api_cast.caller("acme", "read"), api_cast.caller("acme", "redrive")

    # Saying

    def step(self) -> None:
        self.blocks.append([])

    def say(self, text: str) -> None:
        self.blocks[-1].append(text)

    def call(self, who: str, api: api_cast.Api, method: str, url: str, body: Any = None, *shown: str) -> Any:
        """One call of the platform; of the answer, the members named (without names: all)."""
        sent = "" if body is None else " " + _text(body)
        self.say(f"{who:<9}→ {method} {url}{sent}")
        response = api.call(method, url, body)
        answer = response.json()
        self.say(f"{'':<9}← {response.status_code} {_text(_pick(answer, shown))}")
        return answer

    def pay(self, who: str, operation_id: str) -> dict[str, Any]:
        """One call of the provider, under the operation id."""
        self.say(f"{who:<9}→ provider: capture, Idempotency-Key {operation_id}")
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.provider.server_address[1]}/",
            data=b"{}",
            headers={"Idempotency-Key": operation_id},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            answer: dict[str, Any] = json.loads(response.read())
            self.say(f"{'':<9}← {response.status} {_text(answer)}")
        return answer

    # Steps that occur more than once

    def enqueue(self, key: str, **more: Any) -> str:
        body = {"kind": KIND, "payload": {"cents": 4200}, "request_key": key, **more}
        answer = self.call("producer", self.producer, "POST", "/v1/jobs", body, "job_id", "state", "replayed")
        return str(answer["job_id"])

    def claim(self, who: str, **more: Any) -> dict[str, Any]:
        body = {"capabilities": [KIND], "worker": who, **more}
        self.say(f"{who:<9}→ POST /v1/leases/claim {_text(body)}")
        response = self.worker.post("/v1/leases/claim", body)
        (lease,) = response.json()["leases"]
        self.say(f"{'':<9}← {response.status_code} {_text(_pick(lease, SHOWN))}")
        return dict(lease)

    def settle(self, who: str, lease: Mapping[str, Any], verb: str, **more: Any) -> Any:
        body = {"generation": lease["generation"], "lease_token": lease["lease_token"], **more}
        shown = ("state", "replayed", "code", "next_attempt_at", "reason")
        return self.call(who, self.worker, "POST", f"/v1/jobs/{lease['job_id']}/{verb}", body, *shown)

    def audit(self) -> None:
        statement = (
            "SELECT action, target, reason FROM tenants_auditentry"
            " WHERE target LIKE 'job:%%' OR target LIKE 'kind:%%' ORDER BY id"
        )
        for alias in ("default", cast.SHARD):
            for action, target, reason in cast.read(statement, alias=alias):
                self.say(f"{action:<12} {target:<22} {reason}")

    # The story

    def play(self) -> None:
        self.step()  # 1 a kind that acts outside
        kinds.change(
            KIND, {"external_effects": True}, actor=cast.OPS, reason="captures money at the provider"
        )
        self.say('$ manage.py kinds set payment.capture external_effects=true --reason "captures money …"')
        self.job = self.enqueue("order-331:capture")

        self.step()  # 2 three claims that nobody starts
        for name in ("old-1", "old-2", "old-3"):
            self.settle(name, self.claim(name, prefetch=True), "release")

        self.step()  # 3 A acts, and stalls
        self.a = self.claim("A", lease_s=LEASE_S)
        self.pay("A", self.a["operation_id"])
        self.say("A        … stalls")

        self.step()  # 4 B resolves the same operation
        time.sleep(LEASE_S + 0.2)
        self.say(f"reaper   took back {sum(upkeep.reap().values())} lapsed lease")
        self.b = self.claim("B")
        self.charge = self.pay("B", self.b["operation_id"])

        self.step()  # 5 A wakes up, too late
        self.late_renewal = self.settle("A", self.a, "renew")
        self.late_completion = self.settle("A", self.a, "complete", result={"charge": "ch_1"})

        self.step()  # 6 B completes; A tries once more
        self.settle("B", self.b, "complete", result={"charge": self.charge["charge"]})
        self.last_completion = self.settle("A", self.a, "complete", result={"charge": "ch_1"})

        self.step()  # 7 what stays
        url = f"/v1/jobs/{self.job}"
        attempts = self.reader.get(f"{url}/attempts").json()["items"]
        self.attempts = [_pick(one, ("generation", "attempt", "worker", "outcome")) for one in attempts]
        self.say(f"reader   → GET {url}/attempts")
        for one in self.attempts:
            self.say(f"{'':<9}← {_text(one)}")
        self.call("reader", self.reader, "GET", f"{url}/result", None, "outcome", "result", "generation")
        self.say(f"provider {len(self.provider.calls)} calls, {len(self.provider.effects)} effect")

        self.step()  # 8 the same, with an operator between
        self.second = self.enqueue("order-332:capture", max_attempts=1)
        first = self.claim("A")
        self.pay("A", first["operation_id"])
        self.settle("A", first, "fail", error_class="uncertain", message="the answer was lost")

        self.step()  # 9 redrive
        note = "provider says it is up again"
        url = f"/v1/dlq/{self.second}/redrive"
        shown = ("job_id", "redrive_generation", "state", "replayed")
        self.redriven = self.call("operator", self.operator, "POST", url, {"note": note}, *shown)
        self.again = self.claim("B")
        charge = self.pay("B", self.again["operation_id"])
        self.settle("B", self.again, "complete", result={"charge": charge["charge"]})
        self.say(f"provider {len(self.provider.calls)} calls, {len(self.provider.effects)} effects")

        self.step()  # 10 who changed what
        self.audit()


def _pick(members: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: members[name] for name in names or members if name in members}


def _text(members: Any) -> str:
    return json.dumps(members, ensure_ascii=False)


@pytest.fixture
def story(provider: Provider) -> Story:
    told = Story(provider)
    told.play()
    return told


def test_the_story_has_one_effect_and_one_result(story: Story) -> None:
    """All facts of the example: one story is worth one run."""
    assert (story.a["generation"], story.a["attempt"], story.a["reconcile"]) == (4, 1, False)
    assert (story.b["generation"], story.b["attempt"], story.b["reconcile"]) == (5, 2, True)
    assert story.b["earlier_generations"] == [1, 2, 3, 4]
    assert story.a["operation_id"] == story.b["operation_id"] == story.job
    assert (story.late_renewal["code"], story.late_completion["code"]) == ("stale_generation",) * 2
    assert story.last_completion["code"] == "already_finished"
    assert story.provider.calls.count(story.job) == 2
    assert story.charge == {"charge": "ch_1", "replayed": True}
    assert [(one["generation"], one["outcome"], one["worker"]) for one in story.attempts] == [
        (5, "succeeded", "B"),
        (4, "lease_lost", "A"),
        (3, "released", "old-3"),
        (2, "released", "old-2"),
        (1, "released", "old-1"),
    ]


def test_redrive_after_an_uncertain_end_keeps_the_operation_and_reconciles(story: Story) -> None:
    assert story.redriven["redrive_generation"] == 1
    assert (story.again["job_id"], story.again["operation_id"]) == (story.second, story.second)
    assert (story.again["generation"], story.again["reconcile"]) == (2, True)
    assert story.provider.calls.count(story.second) == 2
    assert len(story.provider.effects) == 2
    assert cast.audited("job.redrive") == 1


def test_the_document_tells_the_story_as_it_happens(story: Story, tmp_path: Path) -> None:
    told = ["\n".join(block) for block in story.blocks]
    (tmp_path / "told").write_text("\n\n".join(told))
    documented = re.findall(r"```text\n(.*?)\n```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert [_plain(block, story) for block in documented] == [_plain(block, story) for block in told]


def _plain(block: str, story: Story) -> str:
    """Without what differs from run to run, and with lines that were folded for reading made one again."""
    text = re.sub(r" +", " ", re.sub(r"\n {11,}", " ", block))  # columns are as wide as ids are long
    for pattern, name in (
        (r'"lease_token": "[^"]+"', '"lease_token": "…"'),
        (r"\b\d+-\d+\b", "ID"),
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "INSTANT"),
    ):
        text = re.sub(pattern, name, text)
    return text
