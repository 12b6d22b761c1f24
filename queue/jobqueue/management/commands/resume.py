"""`manage.py resume (queue|tenant|intake) NAME`: undo `pause`."""

from __future__ import annotations

from typing import ClassVar

from jobqueue import policies
from jobqueue.management.commands.pause import Command as Pause
from tenants import registry


class Command(Pause):
    help = "Undo `pause`: a queue or tenant starts jobs again; `intake` takes new jobs in again."
    is_pause: ClassVar = False

    def switch(self, what: str, name: str, *, actor: str, reason: str, seconds: float | None) -> None:
        if what == "tenant":
            registry.resume(name, actor=actor, reason=reason)
        else:
            policies.resume(name, intake=what == "intake", actor=actor, reason=reason)
