"""`manage.py token list|rotate|revoke`: tokens that are there; `createtoken` makes one."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import CommandParser

from jobsplatform.commands import VerbCommand, actor, reason, verb_parser
from jobsplatform.instants import format_instant
from tenants import access, registry
from tenants.access import OVERLAP_SECONDS_MAX
from tenants.models import ApiToken


class Command(VerbCommand):
    help = "List tokens, give one a new secret, or end it. ID is the middle part of jp_ID_…; secrets are not kept."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|rotate|revoke")
        listing = verb_parser(verbs, "list", help="live tokens, newest first")
        owner = listing.add_mutually_exclusive_group(required=True)
        owner.add_argument("--tenant", metavar="SLUG")
        owner.add_argument("--fleet", action="store_true", help="of the whole platform")
        rotate = verb_parser(verbs, "rotate", help="a new secret, printed this once")
        rotate.add_argument(
            "--overlap-s",
            type=_overlap,
            default=0,
            metavar="SECONDS",
            help="for how long the old secret goes on (0)",
        )
        for one in (rotate, verb_parser(verbs, "revoke", help="end it for good, everywhere within 5 s")):
            one.add_argument("id", metavar="ID")
            one.add_argument("--reason", type=reason, default="", help="for the audit")

    def act(self, options: dict[str, Any]) -> None:
        if options["verb"] == "list":
            tenant = None if options["fleet"] else registry.get(options["tenant"])
            for token in access.live_tokens(tenant):
                self.stdout.write(_line(token))
            return
        token = access.live_token(options["id"].removeprefix("jp_").split("_")[0])
        if options["verb"] == "rotate":
            _, text = access.rotate_token(
                token, overlap_s=options["overlap_s"], actor=actor(), reason=options["reason"]
            )
            self.stdout.write(text)
        else:
            access.revoke_token(token, actor=actor(), reason=options["reason"])
            self.stdout.write(f"{token} is ended.")


def _line(token: ApiToken) -> str:
    where = "every queue" if token.queues is None else ",".join(token.queues)
    ends = "" if token.expires_at is None else f", until {format_instant(token.expires_at)}"
    used = "never used" if token.last_used_at is None else f"used {format_instant(token.last_used_at)}"
    name = f"  {token.name}" if token.name else ""
    return f"{token}  {','.join(sorted(token.scopes))} in {where}{ends}, {used}{name}"


def _overlap(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > OVERLAP_SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"a whole number of seconds, 0 to {OVERLAP_SECONDS_MAX}")
    return int(text)
