"""Secrets that one machine makes for itself, once, in files that only their owner can read."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path


def read_or_make(path: Path) -> str:
    """The secret in `path`; made there (mode 0600, 64 characters) when absent, once under any race."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.") as file:  # mode 0600
            file.write(secrets.token_urlsafe(48))
            file.flush()
            os.fsync(file.fileno())
            with suppress(FileExistsError):  # a link never overwrites, and it appears with its content
                os.link(file.name, path)
    return path.read_text("utf-8").strip()
