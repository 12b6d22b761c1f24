"""Runs operators' commands as a shell would: what they print, and how they end."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from django.core.management import CommandError, call_command

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def run(*arguments: str) -> Ran:
    """Run a command in this process, inside the test's transaction."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    try:
        call_command(*arguments, stdout=out, stderr=err)
    except CommandError as error:
        err.write(f"CommandError: {error}\n")
        code = error.returncode
    except SystemExit as end:
        code = int(end.code or 0)
    return Ran(code, out.getvalue(), err.getvalue())


def refused(*arguments: str) -> str:
    """The one line with which a command refuses."""
    ran = run(*arguments)
    assert ran.code in (1, 2), ran
    (line,) = ran.err.strip().splitlines()
    return line


def run_apart(environment: Mapping[str, str], *arguments: str, stdin: bytes = b"") -> Ran:
    """Run a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(MANAGE), *arguments],
        env=dict(environment),
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
