"""What a server leaves to be read: its pid file, its process, its log, and small files with one value."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

LOG_BYTES_MAX: Final = 16 * 1024 * 1024  # one older file is kept


def postmaster_of(cluster: Path) -> int | None:
    """The process id of the postmaster of this cluster, or None: a pid file alone proves nothing."""
    first = text_in(cluster / "postmaster.pid").partition("\n")[0]
    pid = int(first) if first.isdigit() else 0
    return pid if pid and _is_postmaster(pid, cluster) else None


def _is_postmaster(pid: int, cluster: Path) -> bool:
    """Process ids are used again, and a zombie's looks alive: compare name, state and folder."""
    if not os.path.exists("/proc/self/stat"):
        shown = subprocess.run(
            ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        return "postgres" in shown.stdout and str(cluster) in shown.stdout
    process = Path("/proc") / str(pid)
    try:
        program, *arguments = (process / "cmdline").read_bytes().split(b"\0")
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    if state in "ZX" or os.path.basename(program) not in (b"postgres", b"postmaster"):
        return False  # a backend names itself "postgres: user database …"
    return any(
        _is_same(os.fsdecode(argument), cluster) for argument in (*arguments, f"/proc/{pid}/cwd".encode())
    )


def _is_same(path: str, cluster: Path) -> bool:
    try:
        return path.startswith("/") and os.path.samefile(path, cluster)
    except OSError:
        return False


def disown(cluster: Path) -> None:
    """Let our next postmaster take over a pid file whose process number now belongs to a stranger.

    PostgreSQL trusts a live pid but ignores its own parent's. The file must stay: its last lines name the
    shared memory by which PostgreSQL notices backends that outlived their postmaster.
    """
    path = cluster / "postmaster.pid"
    first, _, rest = text_in(path).partition("\n")
    if first.isdigit():
        with path.open("r+") as file:
            file.write(f"{os.getpid()}\n{rest}\n")
            file.truncate()


def rotate(log: Path) -> None:
    """Put a log that has grown large aside."""
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        os.replace(log, log.with_suffix(".log.1"))


def reason_in(log: Path, offset: int = 0) -> str:
    """The line after `offset` that says why the server gave up."""
    if not log.exists():
        return "it wrote no log"
    with log.open("rb") as file:
        file.seek(offset)
        lines = file.read(1 << 20).decode("utf-8", "replace").splitlines()
    for words in (("could not bind",), ("FATAL", "PANIC", "could not")):
        for line in lines:
            if any(word in line for word in words):
                return line.strip()
    return last_line("\n".join(lines)) or "it logged nothing"


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def text_in(path: Path) -> str:
    """A small file's text without outer white space; empty when there is no such file."""
    try:
        return path.read_text("utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def number_in(path: Path) -> int:
    """A small file's number; 0 when there is none."""
    text = text_in(path)
    return int(text) if text.isdigit() else 0
