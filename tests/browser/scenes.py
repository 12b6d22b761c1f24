"""What the pages in the browser show: three tenants in every situation that an operator meets."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.utils import timezone

from jobqueue import policies, upkeep
from tenants import access, registry
from tests import cast

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> =cmd|'/c calc'!A1 \u202e\u0007"


@dataclass
class Scene:
    """What a test may want to know of the scene."""

    now: datetime
    dead: list[int] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    token: str = ""


def demo_scene() -> Scene:
    """Users *ops* (may do everything), *viewer* (may look) and *nobody* (staff without a permission).

    acme starves in `mail` (its objective is 60 s), globex has dead letters in three groups, initech runs at its limit;
    `docs` is paused.
    """
    scene = Scene(now=timezone.now())
    people()
    mail = cast.queue("mail", preset="hnl", age_objective_s={"H": 60, "N": 600})
    cast.queue("docs")
    acme, globex, initech = cast.acme(), cast.globex(), cast.tenant("initech")
    registry.set_quota("initech", {"max_running": 2, "max_depth": 200}, actor=cast.OPS, reason="small plan")
    early = scene.now - timedelta(minutes=20)

    for message in ("connection refused by smtp-3", HOSTILE):
        cast.enqueue_many(3, now=early, queue=mail, tenant_id=globex.pk, max_attempts=1, kind="mail.send")
        held = cast.claim(mail, now=early, limit=3)
        cast.kill(held, now=early + timedelta(seconds=1), message=message)
        scene.dead += [lease.job_id for lease in held]
    cast.enqueue_many(2, now=early, tenant_id=globex.pk, kind="report", payload='{"month": "13"}')
    held = cast.claim("default", now=early, limit=2)
    cast.kill(held, now=early + timedelta(seconds=1), error_class="permanent", message="month must be 1..12")
    scene.dead += [lease.job_id for lease in held]

    cast.enqueue_many(4, now=scene.now, tenant_id=acme.pk, kind="resize")
    for lease in cast.claim("default", now=scene.now, limit=4):
        cast.complete(lease, now=scene.now + timedelta(milliseconds=200))
    cast.enqueue_many(3, now=scene.now, tenant_id=initech.pk, kind="report")
    scene.running = [lease.job_id for lease in cast.claim("default", limit=10, lease_s=3_600, now=scene.now)]
    scene.ready = cast.enqueue_many(5, now=early, queue=mail, tenant_id=acme.pk, priority=0, kind="mail.send")
    cast.enqueue_many(40, now=scene.now, tenant_id=acme.pk, kind="resize", priority=3)
    policies.pause("docs", actor=cast.OPS, reason="the index is being rebuilt")
    _, scene.token = access.create_token(tenant=acme, scopes=["produce", "read"], name="app", actor=cast.OPS)
    upkeep.fold()
    for minutes in range(9, 0, -1):
        upkeep.sample_depths(now=scene.now - timedelta(minutes=minutes))
    return scene


def people() -> None:
    """The users of every scene."""
    users = get_user_model().objects
    users.create_superuser("ops", "", "correct horse battery")
    viewer = users.create_user("viewer", password="correct horse battery", is_staff=True)
    viewer.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    users.create_user("nobody", password="correct horse battery", is_staff=True)
