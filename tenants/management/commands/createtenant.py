"""`manage.py createtenant SLUG`: a new owner of work."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from jobsplatform.commands import VerbCommand, actor
from tenants import registry


class Command(VerbCommand):
    help = "Make a tenant. It has no limits until `setquota` sets some."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug", metavar="SLUG", help="lower-case letters, digits and hyphens")
        parser.add_argument("--name", default="", help="for people")

    def act(self, options: dict[str, Any]) -> None:
        tenant = registry.create_tenant(options["slug"], name=options["name"], actor=actor())
        self.stdout.write(f"Tenant {tenant.slug} made.")
