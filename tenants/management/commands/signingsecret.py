"""`manage.py signingsecret`: what a tenant's receivers verify `http.post` calls with."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import CommandParser

from jobsplatform.commands import VerbCommand, actor
from tenants import signing


class Command(VerbCommand):
    help = "Show or rotate the secret that a tenant's http.post calls are signed with. Both are audited."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=("show", "rotate"))
        parser.add_argument("tenant", metavar="SLUG")
        parser.add_argument(
            "--overlap-s",
            type=_overlap,
            default=signing.OVERLAP_SECONDS,
            metavar="SECONDS",
            help=f"rotate: for how long calls carry the old signature too ({signing.OVERLAP_SECONDS})",
        )
        parser.add_argument("--reason", default="", help="for the audit")

    def act(self, options: dict[str, Any]) -> None:
        slug, by, reason = options["tenant"], actor(), options["reason"]
        if options["verb"] == "show":
            text = signing.reveal(slug, actor=by, reason=reason)
        else:
            text = signing.rotate(slug, overlap_s=options["overlap_s"], actor=by, reason=reason)
        self.stdout.write(text)


def _overlap(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > signing.OVERLAP_SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"a whole number of seconds, 0 to {signing.OVERLAP_SECONDS_MAX}")
    return int(text)
