"""Commands: what Django itself reads of their arguments is not theirs to name."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest
from django.apps import apps
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand, CommandParser

OURS = {
    app.name for app in apps.get_app_configs() if app.name in ("jobqueue", "dlq", "tenants", "jobsplatform")
}
COMMANDS = sorted((app, name) for name, app in get_commands().items() if app in OURS)
# `manage.py` takes `--settings` from whatever a command has parsed under this name, and so on.
DJANGOS = {action.dest for action in BaseCommand().create_parser("manage.py", "x")._actions} - {"help"}


def _dests(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in dict.fromkeys(action.choices.values()):
                yield from _dests(below)
        yield action.dest


@pytest.mark.parametrize(("app", "name"), COMMANDS, ids=[name for _, name in COMMANDS])
def test_no_argument_is_called_like_one_of_djangos(app: str, name: str) -> None:
    command = load_command_class(app, name)
    parser: CommandParser = command.create_parser("manage.py", name)
    found = list(_dests(parser))
    assert {dest for dest in found if dest in DJANGOS and found.count(dest) > 1} == set()
