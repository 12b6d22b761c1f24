"""`manage.py why JOB`: what holds a job, what comes first, and when its turn may come."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from jobqueue.ids import parse_id
from jobqueue.types import FLEET, Gate
from jobqueue.why import Why, why
from jobsplatform.commands import VerbCommand
from jobsplatform.instants import format_instant


class Command(VerbCommand):
    help = (
        "Say why a job waits: the gates that hold it, its position under the current policy, a start range."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job", metavar="JOB", help="its id")
        parser.add_argument("--json", action="store_true", help="as the API answers")

    def act(self, options: dict[str, Any]) -> None:
        answer = why(parse_id(options["job"]), scope=FLEET)
        if options["json"]:
            self.stdout.write(json.dumps(answer.members()))
            return
        self.stdout.write(f"Job {options['job']} is {answer.state}.")
        for gate in answer.gates:
            self.stdout.write(f"  {_line(gate)}")
        for line in _place(answer):
            self.stdout.write(line)


def _line(gate: Gate) -> str:
    until = "" if gate.until is None else f" Until {format_instant(gate.until)}."
    name = "" if gate.gate == "none" else f"{gate.gate}: "
    return f"{name}{gate.detail}{until}"


def _place(answer: Why) -> list[str]:
    if answer.position is None:
        return []
    lines = [f"Position {answer.position:,}, {answer.ahead:,} ahead."]
    if answer.start_between is not None:
        first, last = map(format_instant, answer.start_between)
        lines.append(f"At the present pace it starts between {first} and {last}.")
    return lines
