"""Every privileged verb leaves exactly one entry of its own, with who and why, and every chain verifies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dlq import campaigns, fork
from jobqueue import leases, policies, reveal
from jobqueue.types import FLEET
from tenants import access, registry
from tests import cast
from tests.cast import OPS, SHARD, acme, at
from tests.commands_cast import run

pytestmark = pytest.mark.django_db

NOTE = "ticket 7"


def _token() -> Any:
    return access.create_token(tenant=acme(), scopes=["read"], actor=OPS)[0]


def _campaign(verb: str) -> Callable[[], object]:
    def act() -> object:
        cast.buried()
        made = cast.campaign(now=at(9), note=NOTE)
        if verb == "resume":
            campaigns.pause(made.pk, scope=FLEET, actor=OPS, reason=NOTE)
        return getattr(campaigns, verb)(made.pk, scope=FLEET, actor=OPS, reason=NOTE)

    return act


VERBS: dict[str, Callable[[], object]] = {
    "tenant.create": acme,
    "tenant.pause": lambda: registry.pause(acme().slug, actor=OPS, reason=NOTE),
    "tenant.resume": lambda: registry.resume(acme().slug, actor=OPS, reason=NOTE),
    "tenant.suspend": lambda: registry.suspend(acme().slug, actor=OPS, reason=NOTE),
    "tenant.reinstate": lambda: registry.reinstate(acme().slug, actor=OPS, reason=NOTE),
    "quota.set": lambda: registry.set_quota(acme().slug, {"max_running": 3}, actor=OPS, reason=NOTE),
    "token.create": _token,
    "token.rotate": lambda: access.rotate_token(_token(), overlap_s=0, actor=OPS),
    "token.revoke": lambda: access.revoke_token(_token(), actor=OPS),
    "queue.create": lambda: policies.create_queue("other", actor=OPS),
    "queue.change": lambda: policies.change_queue("default", {"lease_s": 9}, actor=OPS, reason=NOTE),
    "queue.pause": lambda: policies.pause("default", actor=OPS, reason=NOTE),
    "queue.resume_intake": lambda: policies.resume("default", intake=True, actor=OPS, reason=NOTE),
    "job.cancel": lambda: leases.cancel(cast.enqueue(), actor=OPS, reason=NOTE),
    "job.correct": lambda: cast.correct(cast.buried(), note=NOTE),
    "job.redrive": lambda: cast.redriven(cast.buried(), note=NOTE),
    "job.payload_shown": lambda: reveal.payload(cast.buried(), scope=FLEET, actor=OPS, reason=NOTE),
    "job.fork": lambda: fork.fork(
        cast.buried(),
        fork.NewFork(request_key="new", note=NOTE, actor=OPS),
        scope=cast.scope_of(acme()),
    ),
    "campaign.create": lambda: (cast.buried(), cast.campaign(now=at(9), note=NOTE)),
    "campaign.pause": _campaign("pause"),
    "campaign.resume": _campaign("resume"),
    "campaign.abort": _campaign("abort"),
}
WITHOUT_REASON = {"tenant.create", "token.create", "token.rotate", "token.revoke", "queue.create"}


@pytest.mark.parametrize("action", VERBS)
def test_a_privileged_verb_is_on_record_once(action: str) -> None:
    VERBS[action]()
    found = [
        row
        for alias in ("default", SHARD)
        for row in cast.read(
            "SELECT actor, reason FROM tenants_auditentry WHERE action = %s", [action], alias=alias
        )
    ]
    assert found == [(OPS, "" if action in WITHOUT_REASON else NOTE)]
    assert run("verifyaudit", "--quiet").code == 0
