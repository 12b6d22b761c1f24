"""`manage.py createtoken`: an API token, shown once."""

from __future__ import annotations

import argparse
import json
from datetime import timedelta
from typing import Any, Final

from django.core.management.base import CommandParser
from django.utils import timezone

from jobsplatform import scopes
from jobsplatform.commands import VerbCommand, actor, checked, names
from tenants import access, registry
from tenants.api.tokens import NEW_TOKEN
from tenants.models import ApiToken

EXPIRES_SECONDS_MAX: Final = 100 * 365 * 24 * 3_600


class Command(VerbCommand):
    help = "Make an API token and print it. It is shown this once and stored nowhere."

    def add_arguments(self, parser: CommandParser) -> None:
        owner = parser.add_mutually_exclusive_group(required=True)
        owner.add_argument("--tenant", metavar="SLUG", help="the tenant that it acts for")
        owner.add_argument("--fleet", action="store_true", help="a token of the whole platform")
        parser.add_argument(
            "--scopes",
            type=names,
            required=True,
            metavar="A,B",
            help=f"any of {','.join(sorted(scopes.ALL))}",
        )
        parser.add_argument("--queues", type=names, metavar="A,B", help="only these queues (all)")
        parser.add_argument("--name", default="", help="for people")
        parser.add_argument("--expires-in-s", type=_seconds, metavar="SECONDS", help="until it ends (never)")
        parser.add_argument("--json", action="store_true", help="print one line of JSON")

    def act(self, options: dict[str, Any]) -> None:
        expires_in_s = options["expires_in_s"]
        asked = {"name": options["name"], "scopes": options["scopes"]}
        if options["queues"] is not None:
            asked["queues"] = options["queues"]
        values = checked(NEW_TOKEN, json.dumps(asked))
        token, text = access.create_token(
            tenant=None if options["fleet"] else registry.get(options["tenant"]),
            scopes=values["scopes"],
            queues=values["queues"],
            name=values["name"],
            expires_at=None if expires_in_s is None else timezone.now() + timedelta(seconds=expires_in_s),
            actor=actor(),
        )
        self.stdout.write(_as_json(token, text) if options["json"] else text)


def _as_json(token: ApiToken, text: str) -> str:
    tenant = None if token.tenant is None else token.tenant.slug
    return json.dumps(
        {"token": text, "id": token.public_id, "tenant": tenant, "scopes": sorted(token.scopes)}
    )


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= EXPIRES_SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"a whole number of seconds, 1 to {EXPIRES_SECONDS_MAX}")
    return int(text)
