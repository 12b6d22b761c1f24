"""`manage.py setquota TENANT key=value …`: limits of a tenant. It stands here because it must know queues and bands."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from jobqueue import policies, quotas
from jobsplatform.commands import VerbCommand, actor, assigned, key_value
from jobsplatform.errors import Invalid, NotFound
from tenants import registry
from tenants.models import Quota


class Command(VerbCommand):
    help = (
        "Set limits of a tenant, over all queues or in one, over all bands or in one; `none` lifts a limit."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="its slug")
        parser.add_argument("--queue", default="", metavar="NAME", help="only in this queue")
        parser.add_argument(
            "--band", metavar="BAND", help="only in this band of the queue: its index or name"
        )
        parser.add_argument("--reason", default="", help="for the audit")
        parser.add_argument(
            "limits",
            type=key_value,
            nargs="+",
            metavar="key=value",
            help=", ".join(registry.LIMITS),
        )

    def act(self, options: dict[str, Any]) -> None:
        quota = registry.set_quota(
            options["tenant"],
            assigned(Quota, options["limits"]),
            queue=options["queue"],
            band=band_of(options["queue"], options["band"]),
            actor=actor(),
            reason=options["reason"],
        )
        self.stdout.write(f"Quota {quota}: {quotas.told(registry.limits_of(quota))}.")
        for note in _without_effect(quota):
            self.stdout.write(note)


def _without_effect(quota: Quota) -> list[str]:
    """What is stored and binds nobody yet."""
    notes = []
    if quota.enqueue_burst is not None and quota.enqueue_rate_per_s is None:
        notes.append("enqueue_burst has no effect without enqueue_rate_per_s.")
    return notes


def band_of(queue: str, asked: str | None) -> int | None:
    """The index of a band of the queue. Raises Invalid for a queue or band that there is not."""
    if not queue:
        if asked is not None:
            raise Invalid.at("/band", "--band needs --queue: bands belong to a queue.")
        return None
    try:
        policy = policies.by_name(queue)
    except NotFound:
        raise Invalid.at("/queue", f"There is no queue {queue!r}.") from None
    if asked is None:
        return None
    return policy.priority(int(asked) if asked.isascii() and asked.isdecimal() else asked)
