"""`manage.py quota show|effect|history|revert TENANT …`: limits beside their use; `setquota` sets them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from jobqueue import quotas
from jobqueue.management.commands.setquota import band_of
from jobsplatform.commands import VerbCommand, actor, assigned, key_value, reason, verb_parser
from jobsplatform.errors import Invalid
from jobsplatform.instants import format_instant
from tenants import registry
from tenants.measures import Place
from tenants.models import Quota, QuotaVersion


class Command(VerbCommand):
    help = (
        "What a tenant uses of its limits, what a change would do, every version of them, and the way back."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="show|effect|history|revert")
        for verb, text in (
            ("show", "each limit: its use now, the most of it in 24 hours, and what it refused in them"),
            ("effect", "what these limits would do; nothing is stored"),
            ("history", f"the newest {registry.HISTORY_MAX} versions"),
            ("revert", "make the limits of a version hold again"),
        ):
            one = verb_parser(verbs, verb, help=text)
            one.add_argument("tenant", metavar="TENANT", help="its slug")
            if verb == "effect":
                one.add_argument("--queue", default="", metavar="NAME", help="only in this queue")
                one.add_argument("--band", metavar="BAND", help="only in this band of it: index or name")
                one.add_argument("limits", type=key_value, nargs="+", metavar="key=value", help=LIMITS)
            if verb == "revert":
                one.add_argument("number", type=int, metavar="VERSION", help="its number in the history")
                one.add_argument("--reason", type=reason, default="", help="for the audit")

    def act(self, options: dict[str, Any]) -> None:
        slug, verb = options["tenant"], options["verb"]
        {"show": self._show, "effect": self._effect, "history": self._history, "revert": self._revert}[verb](
            slug, options
        )

    def _show(self, slug: str, options: dict[str, Any]) -> None:
        found = quotas.lines(registry.get(slug).pk)
        for line in found:
            self.stdout.write(_words(line))
        if not found:
            self.stdout.write(f"{slug} has no limits.")

    def _effect(self, slug: str, options: dict[str, Any]) -> None:
        limits = assigned(Quota, options["limits"])
        unknown = [name for name in limits if name not in registry.LIMITS]
        if unknown:
            raise Invalid.at(f"/{unknown[0]}", f"{unknown[0]} is not a limit; there are {LIMITS}.")
        queue = options["queue"]
        said = quotas.effects(slug, limits, queue=queue, band=band_of(queue, options["band"]))
        for sentence in said or ["Nothing would change."]:
            self.stdout.write(sentence)

    def _history(self, slug: str, options: dict[str, Any]) -> None:
        found = registry.quota_history(slug)
        for version in found:
            self.stdout.write(_version(version))
        if not found:
            self.stdout.write(f"No limit of {slug} was ever changed.")

    def _revert(self, slug: str, options: dict[str, Any]) -> None:
        quota = registry.revert_quota(slug, options["number"], actor=actor(), reason=options["reason"])
        shown = quotas.told(registry.limits_of(quota))
        self.stdout.write(f"Quota {quota}: {shown}, as in version {options['number']}.")


LIMITS = ", ".join(registry.LIMITS)


def _words(line: quotas.Line) -> str:
    used = "" if line.used is None else f"{line.used:,g} of "
    share = "" if line.share is None else f" ({line.share:.0%}{', near the limit' if line.is_near else ''})"
    peak = "" if line.peak is None else f", most in 24 h {line.peak:,}"
    refused = "" if line.refused is None else f", refused in 24 h {line.refused:,}"
    return f"{line.where}: {line.name} {used}{line.value:,g}{share}{peak}{refused}"


def _version(version: QuotaVersion) -> str:
    back = "" if version.reverts_to is None else f", back to {version.reverts_to}"
    why = f": {version.reason}" if version.reason else ""
    where = quotas.where(Place(version.queue, version.band))
    at = format_instant(version.created_at)
    return f"{version.number}  {where}: {quotas.told(version.limits)}; {at}, {version.actor}{back}{why}"
