"""What the operators' commands share: refusals as one line, `key=value` arguments, and who acts.

A command is a thin edge over the verbs: it exits 0, or prints one line on stderr and exits 1 (the platform
refused) or 2 (the command line cannot be read).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import psycopg
from django.core.exceptions import FieldDoesNotExist
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import IntegrityError, ProgrammingError, connections, models

from jobsplatform import strictjson
from jobsplatform.acting import process_owner
from jobsplatform.errors import Invalid, JobsPlatformError
from jobsplatform.fields import Fault, normal_key
from jobsplatform.shapes import Shape
from jobsplatform.wording import describe, one_line

REASON_CHARS_MAX = 2_000
_WHOLE = re.compile(r"-?[0-9]{1,19}").fullmatch


class StrictCommand(BaseCommand):
    """Base of all commands: a command line that cannot be read is told in one line."""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        # A flag cut short must not become another: `--payload` would be `--payload-ref`.
        parser = super().create_parser(prog_name, subcommand, **{"allow_abbrev": False, **kwargs})
        return _refusing_in_one_line(parser, subcommand)


class VerbCommand(StrictCommand):
    """Base of commands that call verbs: a subclass writes `act`."""

    requires_system_checks: list[str] = []  # scripts call these often; `up` and `check` look at the settings

    def act(self, options: dict[str, Any]) -> None:
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.act(options)
        except JobsPlatformError as error:
            raise CommandError(describe(error)) from error
        except IntegrityError as error:
            raise CommandError("Another process made the same thing at this moment.") from error
        except (ProgrammingError, psycopg.ProgrammingError) as error:
            raise CommandError(
                f"The database is not prepared ({one_line(error)}): run `manage.py migrate`."
            ) from error
        except UnicodeEncodeError as error:
            raise CommandError("An argument is not UTF-8.") from error
        except BrokenPipeError:  # whoever read our lines has seen enough: the interpreter must not try again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        finally:
            _close_idle()


def verb_parser(verbs: Any, name: str, **kwargs: Any) -> CommandParser:
    """The parser of one verb of a command that has several (`verbs`: of `add_subparsers`), as strict as its own."""
    return _refusing_in_one_line(verbs.add_parser(name, allow_abbrev=False, **kwargs), name)


def _refusing_in_one_line(parser: CommandParser, name: str) -> CommandParser:
    def refuse(message: str) -> NoReturn:
        parser.exit(2, f"{name}: {' '.join(message.split())} (see --help)\n")

    if parser.called_from_command_line:
        parser.error = refuse  # type: ignore[method-assign]
    return parser


def _close_idle() -> None:
    """Give connections back, except to a caller in this process that is in a transaction (`call_command`)."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


def actor() -> str:
    """How the audit names whoever runs a command on this machine."""
    return process_owner()


def reason(text: str) -> str:
    """Why, for the audit (an argparse type)."""
    if len(text) > REASON_CHARS_MAX:
        raise argparse.ArgumentTypeError(f"at most {REASON_CHARS_MAX} characters")
    return text


def names(text: str) -> list[str]:
    """`a,b` as a list (an argparse type)."""
    return [part.strip() for part in text.split(",") if part.strip()]


def key(text: str) -> str:
    """A request key or a redrive key, as the API has it (an argparse type)."""
    try:
        return normal_key(text)
    except Fault as fault:
        raise argparse.ArgumentTypeError(fault.detail) from None


def key_value(text: str) -> tuple[str, str]:
    """`key=value` in two (an argparse type)."""
    key, mark, value = text.partition("=")
    if not mark or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value")
    return key.strip(), value.strip()


def assigned(model: type[models.Model], pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Settings of a model's row from texts; `none` is null. Which there are, and their bounds, verbs decide.

    Raises Invalid for a text that is no value of its field, and for a key that is given twice.
    """
    values: dict[str, Any] = {}
    for key, text in pairs:
        if key in values:
            raise Invalid.at(f"/{key}", f"{key} is given twice.")
        values[key] = None if text.lower() == "none" else _value(model, key, text)
    return values


def _value(model: type[models.Model], key: str, text: str) -> object:
    try:
        field = model._meta.get_field(key)
    except FieldDoesNotExist:
        return text
    if isinstance(field, models.IntegerField):
        if _WHOLE(text) is None:
            raise Invalid.at(f"/{key}", f"{key} must be a whole number or none, not {text!r}.")
        return int(text)
    if isinstance(field, models.FloatField):
        return _number(key, text)
    if isinstance(field, models.BooleanField):
        return _truth(key, text)
    return _json(key, text) if isinstance(field, models.JSONField) else text


def _truth(key: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise Invalid.at(f"/{key}", f"{key} must be true or false, not {text!r}.")
    return text.lower() == "true"


def _number(key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise Invalid.at(f"/{key}", f"{key} must be a number or none, not {text!r}.")
    return number


def _json(key: str, text: str) -> object:
    try:
        strictjson.raw(text)
    except Invalid as error:
        raise Invalid.at(f"/{key}", f"{key} must be JSON or none: {describe(error)}") from None
    return json.loads(text)


def checked(shape: Shape, text: str | bytes) -> dict[str, Any]:
    """The values of one JSON object, read and refused by the rules of the API. Raises JobsPlatformError."""
    body = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    result = shape.check(strictjson.read(body, shape.template))
    if (refusal := result.refusal) is not None:
        raise refusal
    return result.values
