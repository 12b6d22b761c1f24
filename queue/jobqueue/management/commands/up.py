"""`manage.py up`: the whole platform on this machine, with one command."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import CommandParser

from jobsplatform import migrating, scopes
from jobsplatform.commands import StrictCommand
from jobsplatform.embedded import EmbeddedError, Server
from jobsplatform.supervisor import Options, Supervisor, UpError, say
from tenants import access
from tenants.models import ApiToken

OPERATOR = "operator"
SHARDS_MAX = 64


class Command(StrictCommand):
    help = "Start PostgreSQL, migrate, and run web, worker, dispatcher and reaper until Ctrl-C."
    requires_system_checks: list[str] = []  # the database need not run yet; `--prepare` checks it

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--port", type=_port, default=8000, metavar="N", help="web port on loopback (8000)"
        )
        parser.add_argument(
            "--data", metavar="DIR", help="folder of all state (JOBSPLATFORM_DATA, else .data)"
        )
        parser.add_argument("--shards", type=_shards, metavar="N", help="databases to spread jobs over (1)")
        parser.add_argument("--no-demo", action="store_true", help="no demo tenants and jobs")
        parser.add_argument("--no-workers", action="store_true", help="everything but runworker")
        parser.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["prepare"]:
                self.check(databases=list(settings.DATABASES))  # an unsafe server or setting is refused here
                prepare(demo=not options["no_demo"])
            else:
                Supervisor(_options(options)).run()
        except (UpError, EmbeddedError) as error:
            self.stderr.write(str(error), self.style.ERROR)
            sys.exit(1)


def _options(options: dict[str, Any]) -> Options:
    """The flags, with what the settings and the data folder say where a flag is absent."""
    shards = options["shards"] or max(1, len(settings.SHARDS))
    if settings.DATABASE_URL and shards != max(1, len(settings.SHARDS)):
        raise UpError(
            "With JOBSPLATFORM_DATABASE_URL the shards are named by JOBSPLATFORM_SHARDS, not by --shards."
        )
    return Options(
        port=options["port"],
        data=Path(settings.DATA),
        shards=shards,
        demo=not options["no_demo"],
        workers=not options["no_workers"],
        root=Path(settings.BASE_DIR),
        server=None if settings.DATABASE_URL else Server(settings.DATA),
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError("a port is a number from 1 to 65535 (0: any free one)")
    return int(text)


def _shards(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= SHARDS_MAX:
        raise argparse.ArgumentTypeError(f"1 to {SHARDS_MAX} shards")
    return int(text)


# Preparing the databases, in a process of its own once the server runs


def prepare(*, demo: bool) -> None:
    """Migrate every database, make the operator and a token if there are none yet, fill in the demo."""
    say("Migrations", f"{sum(migrating.migrate(alias) for alias in settings.DATABASES)} applied")
    _make_operator()
    _make_token()
    if demo:
        from jobqueue import demo as demonstration

        is_there = get_user_model()._default_manager.filter(username=OPERATOR).exists()
        say("Demo", demonstration.prepare(OPERATOR if is_there else None))


def _make_operator() -> None:
    users = get_user_model()
    if users._default_manager.filter(is_superuser=True).exists():
        say("Operator", f"as before (forgotten? manage.py changepassword {OPERATOR})")
        return
    password = secrets.token_urlsafe(12)
    users._default_manager.create_superuser(OPERATOR, "", password)
    say("Operator", f"{OPERATOR} / {password}   (shown once)")


def _make_token() -> None:
    """The first fleet token; its text is stored nowhere."""
    if ApiToken.objects.filter(tenant=None).exists():
        return
    _, text = access.create_token(tenant=None, scopes=sorted(scopes.ALL), name=OPERATOR, actor="manage.py up")
    say("Token", f"{text}   (shown once; fleet, all scopes)")
