"""The one table of what operators do in the admin, and who of the shipped groups may: rows are tried by everybody.

To add a page's act: a row in `ACTS`. `send` makes what the act needs (as `ops`, by the verbs), sends it with the given
client and answers the response; `happened` tells from the audit whether it took effect: exactly one entry of `action`
by that user. `forged` sends the same with ids that are absent, foreign or malformed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.test import Client
from django.urls import reverse

from dlq import overview
from jobqueue import lanes, policies, processes
from jobqueue.ids import format_id
from jobqueue.models import Dependency, Process, Queue
from tenants import access, registry
from tenants.models import Membership, Tenant
from tests import cast
from tests.cast import SHARD

GROUPS = ("Viewer", "Support", "Operator", "Quota manager", "Tenant admin", "Auditor")
VIEWER, SUPPORT, OPERATOR, QUOTA, TENANT, AUDITOR = GROUPS
FORGED = ("0-999999999999", "999-1", "x", "0-0", "%00", "../1")
FORGED_NUMBERS = (999_999_999, 0)
Send = Callable[[Client, Tenant], Any]


@dataclass(frozen=True, slots=True)
class Act:
    """What is tried. `owner`: whose job, quota or token it is about, where it is about a tenant's."""

    name: str
    action: str  # of its entry in the audit
    groups: frozenset[str]
    send: Send
    forged: Callable[[Client], list[Any]] = field(default=lambda client: [])


def member_of(group: str) -> Client:
    """A client of staff in one group. Nothing but the group gives them rights."""
    user, _ = User.objects.get_or_create(username=f"in-{group.lower().replace(' ', '-')}", is_staff=True)
    user.groups.set([Group.objects.get(name=group)])
    return client_of(user)


def outsiders() -> dict[str, Client]:
    """Who may do nothing at all here: anyone, staff without a group, a tenant's own admin, a former operator."""
    bare = User.objects.create_user("bare", is_staff=True)
    own = User.objects.create_user("own", is_staff=False)
    Membership.objects.create(tenant=cast.acme(), user=own, role=Membership.Role.ADMIN)
    former = User.objects.create_user("former", is_staff=True)
    former.groups.set([Group.objects.get(name=OPERATOR)])
    client = client_of(former)
    User.objects.filter(pk=former.pk).update(is_active=False)
    return {"anyone": Client(), "bare": client_of(bare), "own": client_of(own), "former": client}


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def again(clients: dict[str, Client]) -> dict[str, Client]:
    """The same people, in browsers that have seen nothing but their log-in."""
    fresh = {who: Client() for who in clients}
    for who, client in clients.items():
        fresh[who].cookies.update(client.cookies)
    return fresh


@contextmanager
def undone() -> Iterator[None]:
    """What is done inside leaves no trace, on neither database nor in this process."""
    with ExitStack() as stack:
        points = [(alias, transaction.savepoint(using=alias)) for alias in ("default", SHARD)]
        try:
            yield
        finally:
            for alias, point in points:
                transaction.savepoint_rollback(point, using=alias)
            for module in (policies, lanes, access, overview):
                module.forget()
            stack.close()


# What is tried


def _post(client: Client, page: str, *args: Any, **form: Any) -> Any:
    return client.post(reverse(f"admin:{page}", args=args), form)


def _chosen(client: Client, name: str, action: str, pk: int) -> Any:
    return client.post(reverse(f"admin:{name}_changelist"), {"action": action, "_selected_action": [pk]})


def _queue() -> Queue:
    return Queue.objects.get(pk=cast.queue("work", preset="hnl").id)


def _policy(client: Client, share: str = "1") -> Any:
    form = {"weight_0": "5", "weight_1": "2", "weight_2": "1", "cost_model": "unit", "reserved_share": "0.05"}
    return _post(client, "queue_policyversion_new", _queue().pk, **form, share=share, reason="r")


def _tried_policy() -> int:
    weights = [policies.Band("H", 9), policies.Band("N", 2), policies.Band("L", 1)]
    queue = _queue()
    policies.set_policy(queue.name, {"bands": weights}, share=0.5, actor=cast.OPS)
    return int(queue.pk)


def _settings(client: Client) -> Any:
    queue = _queue()
    values = {name: getattr(queue, name) for name in policies.SETTABLE}
    form = {name: "" if value is None else value for name, value in {**values, "lease_s": 77}.items()}
    return _post(client, "queue_queue_change", queue.pk, **form)


def _made_queue(client: Client) -> Any:
    values = {name: getattr(Queue(), name) for name in policies.SETTABLE}
    form = {name: "" if value is None else value for name, value in values.items()}
    return _post(client, "queue_queue_add", **form, name="fresh", preset="hnl")


def _worker() -> str:
    beacon = processes.Beacon(Process.Kind.WORKER, name="w-1")
    beacon.beat()
    return beacon.key


def _dead(owner: Tenant) -> str:
    return format_id(cast.buried(tenant_id=owner.pk, error_class="transient"))


def _delayed(owner: Tenant) -> str:
    return format_id(cast.enqueue(now=None, tenant_id=owner.pk, delay_s=600))


def _group(owner: Tenant) -> str:
    dead = cast.row("dlq_deadletter", cast.buried(tenant_id=owner.pk))
    return reverse("admin:dlq_deadletter_group", args=[dead["fingerprint"]])


def _wizard(client: Client, owner: Tenant) -> Any:
    dead = cast.row("dlq_deadletter", cast.buried(tenant_id=owner.pk))
    scope = f"fingerprint={dead['fingerprint']}&tenant={owner.slug}&frozen=2025-01-01T00:00:00Z"
    plan = "rate_per_s=1&canary=0&stop_at_failure_share=1&note=n"
    address = f"{reverse('admin:redrive_wizard')}?{scope}&{plan}&step=summary"
    return client.post(address, {"confirm": "redrive 0", "key": "k"})


def _limits(client: Client, tenant_id: int, place: str = "queue=") -> Any:
    """Store a limit whose effect was shown."""
    form = {"max_running": "3", "seen": "max_running=3", "save": "x", "reason": "r"}
    return client.post(f"{reverse('admin:tenants_tenant_quota', args=[tenant_id])}?{place}", form)


def _limited(owner: Tenant) -> int:
    """A version of a tenant's limits that holds no more."""
    for depth in (10, 5):
        registry.set_quota(owner.slug, {"max_depth": depth}, actor=cast.OPS)
    return registry.quota_history(owner.slug)[1].number


def _newcomer() -> dict[str, str]:
    user, _ = User.objects.get_or_create(username="newcomer")
    return {"user": user.get_username(), "role": "viewer"}


def _dependency() -> Dependency:
    return Dependency.objects.get_or_create(name="smtp")[0]


def _forged_jobs(*names: str) -> Callable[[Client], list[Any]]:
    def send(client: Client) -> list[Any]:
        fields = {"reason": "r", "note": "n", "payload": "{}", "redrive_key": "k"}
        known = [(name, reverse(f"admin:{name}", args=["ID"])) for name in names]
        return [
            client.post(address.replace("ID", forged), fields) for _, address in known for forged in FORGED
        ]

    return send


def _forged_numbers(name: str) -> Callable[[Client], list[Any]]:
    return lambda client: [_post(client, name, number, reason="r", share="1") for number in FORGED_NUMBERS]


def _forged_choice(name: str, action: str) -> Callable[[Client], list[Any]]:
    return lambda client: [_chosen(client, name, action, number) for number in FORGED_NUMBERS]


def _forged_switch(verb: str) -> Callable[[Client], list[Any]]:
    return lambda client: [
        *(_post(client, "tenants_tenant_switch", number, verb, reason="r") for number in FORGED_NUMBERS),
        _post(client, "tenants_tenant_switch", cast.acme().pk, f"{verb}-all", reason="r"),
    ]


def _forged_queue(name: str) -> Callable[[Client], list[Any]]:
    return lambda client: [
        _post(client, name, forged, what="dispatch", reason="r") for forged in ("nope", "-", "x" * 300)
    ]


DESK = frozenset({SUPPORT, OPERATOR})
EXPORTS = frozenset({SUPPORT, OPERATOR, AUDITOR})
AUDITS = frozenset({OPERATOR, AUDITOR})
RUNS = frozenset({OPERATOR})
TENANTS = frozenset({OPERATOR, TENANT})
TOKENS = frozenset({TENANT})
QUOTAS = frozenset({QUOTA})
NOBODY: frozenset[str] = frozenset()

_SNOOZE = {"verb": "snooze", "for_s": "3600", "snooze_note": "n"}

ACTS = [
    Act(
        "pause a queue",
        "queue.pause",
        RUNS,
        lambda client, owner: _post(client, "queue_pause", _queue().name, what="dispatch", reason="r"),
        _forged_queue("queue_pause"),
    ),
    Act(
        "drain a queue",
        "queue.pause_intake",
        RUNS,
        lambda client, owner: _post(
            client, "queue_pause", _queue().name, what="intake", reason="r", minutes="5"
        ),
    ),
    Act(
        "resume a queue",
        "queue.resume",
        RUNS,
        lambda client, owner: _post(client, "queue_resume", _queue().name, what="dispatch", reason="r"),
        _forged_queue("queue_resume"),
    ),
    Act(
        "pause chosen queues",
        "queue.pause",
        RUNS,
        lambda client, owner: _chosen(client, "queue_queue", "pause", _queue().pk),
        _forged_choice("queue_queue", "pause"),
    ),
    Act("change a queue", "queue.change", RUNS, lambda client, owner: _settings(client)),
    Act("make a queue", "queue.create", NOBODY, lambda client, owner: _made_queue(client)),
    Act(
        "make a policy",
        "policy.set",
        RUNS,
        lambda client, owner: _policy(client),
        _forged_numbers("queue_policyversion_new"),
    ),
    Act(
        "roll a policy out",
        "policy.roll_out",
        RUNS,
        lambda client, owner: _post(
            client, "queue_policyversion_roll_out", _tried_policy(), share="1", reason="r"
        ),
        _forged_numbers("queue_policyversion_roll_out"),
    ),
    Act(
        "return to a policy",
        "policy.return",
        RUNS,
        lambda client, owner: _post(client, "queue_policyversion_return", _tried_policy(), reason="r"),
        _forged_numbers("queue_policyversion_return"),
    ),
    Act(
        "drain a worker",
        "worker.drain",
        RUNS,
        lambda client, owner: _post(client, "process_drain", _worker(), reason="r"),
        lambda client: [_post(client, "process_drain", forged, reason="r") for forged in ("0" * 32, "x")],
    ),
    Act(
        "cancel a job",
        "job.cancel",
        DESK,
        lambda client, owner: _post(
            client, "queue_job_cancel", format_id(cast.enqueue(tenant_id=owner.pk)), reason="r"
        ),
        _forged_jobs("queue_job_cancel"),
    ),
    Act(
        "correct a dead letter",
        "job.correct",
        DESK,
        lambda client, owner: _post(
            client, "dlq_deadletter_correct", _dead(owner), note="n", payload='{"a": 1}'
        ),
        _forged_jobs("dlq_deadletter_correct"),
    ),
    Act(
        "redrive a dead letter",
        "job.redrive",
        DESK,
        lambda client, owner: _post(
            client, "dlq_deadletter_redrive", _dead(owner), note="n", redrive_key="k"
        ),
        _forged_jobs("dlq_deadletter_redrive"),
    ),
    Act(
        "start a waiting job now",
        "job.retry_now",
        DESK,
        lambda client, owner: _post(client, "queue_job_retry", _delayed(owner), reason="r"),
        _forged_jobs("queue_job_retry"),
    ),
    Act(
        "reveal a payload",
        "job.payload_shown",
        DESK,
        lambda client, owner: _post(client, "queue_job_reveal", _delayed(owner), reason="r"),
        _forged_jobs("queue_job_reveal"),
    ),
    Act(
        "export jobs",
        "job.export",
        EXPORTS,
        lambda client, owner: _post(client, "queue_job_export", q=f"tenant:{owner.slug}", format="csv"),
    ),
    Act(
        "export the audit",
        "audit.export",
        AUDITS,
        lambda client, owner: _post(client, "audit_export", tenant=owner.slug, format="jsonl"),
    ),
    Act(
        "assign an error",
        "group.assign",
        DESK,
        lambda client, owner: client.post(_group(owner), {"assignee": "", "note": "n"}),
        lambda client: [
            client.post(f"/admin/dlq/deadletter/groups/{forged}/", {"assignee": "", "note": "n"})
            for forged in ("0" * 16, "x", "0-1")
        ],
    ),
    Act(
        "snooze an error",
        "group.snooze",
        DESK,
        lambda client, owner: client.post(_group(owner), _SNOOZE),
        lambda client: [
            client.post(f"/admin/dlq/deadletter/groups/{forged}/", _SNOOZE) for forged in ("0" * 16, "x")
        ],
    ),
    Act(
        "redrive many by the wizard",
        "campaign.create",
        DESK,
        lambda client, owner: _wizard(client, owner),
    ),
    Act(
        "pause a campaign",
        "campaign.pause",
        DESK,
        lambda client, owner: (
            _dead(owner),
            _post(client, "dlq_campaign_pause", cast.campaign(now=cast.at(9)).pk, reason="r"),
        )[1],
        _forged_numbers("dlq_campaign_pause"),
    ),
    Act(
        "pause a tenant",
        "tenant.pause",
        TENANTS,
        lambda client, owner: _post(client, "tenants_tenant_switch", owner.pk, "pause", reason="r"),
        _forged_switch("pause"),
    ),
    Act(
        "suspend a tenant",
        "tenant.suspend",
        TENANTS,
        lambda client, owner: _post(client, "tenants_tenant_switch", owner.pk, "suspend", reason="r"),
        _forged_switch("suspend"),
    ),
    Act(
        "make a tenant",
        "tenant.create",
        TOKENS,
        lambda client, owner: _post(client, "tenants_tenant_add", slug="umbrella", name="U"),
    ),
    Act(
        "set a quota",
        "quota.set",
        QUOTAS,
        lambda client, owner: _limits(client, owner.pk),
        lambda client: [
            *(_limits(client, number) for number in FORGED_NUMBERS),
            *(
                _limits(client, cast.acme().pk, place)
                for place in ("queue=nowhere", "queue=&band=1", "band=x")
            ),
        ],
    ),
    Act(
        "go back to a limit",
        "quota.revert",
        QUOTAS,
        lambda client, owner: _post(
            client, "tenants_tenant_revert", owner.pk, _limited(owner), reason="they pay again"
        ),
        lambda client: [
            *(_post(client, "tenants_tenant_revert", number, 1, reason="r") for number in FORGED_NUMBERS),
            _post(client, "tenants_tenant_revert", cast.acme().pk, _limited(cast.globex()), reason="r"),
        ],
    ),
    Act(
        "give a user a role",
        "permission.change",
        TOKENS,
        lambda client, owner: _post(client, "tenants_tenant_member_add", owner.pk, **_newcomer(), reason="r"),
        lambda client: [
            _post(client, "tenants_tenant_member_add", number, **_newcomer(), reason="r")
            for number in FORGED_NUMBERS
        ],
    ),
    Act(
        "hold a dependency open",
        "dependency.open",
        RUNS,
        lambda client, owner: _post(
            client, "queue_dependency_open", _dependency().pk, minutes="5", reason="r"
        ),
        _forged_numbers("queue_dependency_open"),
    ),
    Act(
        "make a token",
        "token.create",
        TOKENS,
        lambda client, owner: _post(
            client, "tenants_apitoken_add", tenant=owner.pk, name="w", scopes=["read"]
        ),
    ),
    Act(
        "revoke a token",
        "token.revoke",
        TOKENS,
        lambda client, owner: _chosen(
            client,
            "tenants_apitoken",
            "revoke",
            access.create_token(tenant=owner, scopes=["read"], actor=cast.OPS)[0].pk,
        ),
        _forged_choice("tenants_apitoken", "revoke"),
    ),
]


def granted(group: str) -> set[str]:
    """What a shipped group holds, as `app.codename`."""
    rows = Permission.objects.filter(group__name=group).values_list("content_type__app_label", "codename")
    return {f"{label}.{code}" for label, code in rows}


def done(action: str, username: str) -> int:
    """How often a user did that, over both databases."""
    counts = [
        cast.read(
            "SELECT count(*) FROM tenants_auditentry WHERE action = %s AND actor = %s",
            [action, f"user:{username}"],
            alias=alias,
        )
        for alias in ("default", SHARD)
    ]
    return sum(int(count[0][0]) for count in counts)
