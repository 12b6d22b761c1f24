"""The account that the embedded server runs as: ours; for root, another user with as little as will do."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# To enter and read folders, and only if that is not to be had, to write them too.
CAPABILITIES = ("dac_read_search", "dac_override")


class EmbeddedError(Exception):
    """The server cannot be provided; the message is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class Account:
    """How to run the server's programs. Without a name: as we are. A prefix drops the rights by itself."""

    name: str = ""
    uid: int = -1
    gid: int = -1
    prefix: tuple[str, ...] = ()

    @classmethod
    def choose(cls, binaries: Path, folder: Path) -> Account:
        """The least account that can run `binaries` on `folder` (root hands it over), or EmbeddedError."""
        if os.geteuid() != 0:
            if folder.stat().st_uid != os.geteuid():
                raise EmbeddedError(f"{folder} belongs to another user: run as that user.")
            return cls()
        entry = _unprivileged_user()
        _hand_over(folder, entry.pw_uid, entry.pw_gid)
        plain = cls(entry.pw_name, entry.pw_uid, entry.pw_gid)
        for account in (plain, *plain._with_a_capability()):
            if account._reaches(binaries, folder):
                return account
        raise EmbeddedError(
            f"PostgreSQL must not run as root, and {entry.pw_name} cannot reach {binaries} and {folder}: "
            "use folders that other users may enter, or set JOBSPLATFORM_DATABASE_URL."
        )

    def _with_a_capability(self) -> Iterator[Account]:
        """Variants that keep one right of root's. `setpriv` is part of util-linux."""
        setpriv = shutil.which("setpriv")
        for capability in CAPABILITIES if setpriv else ():
            only = f"-all,+{capability}"
            drop = (f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups", f"--inh-caps={only}")
            # Without the last bit access(2), by which PostgreSQL finds its own files, forgets the capability.
            keep = (f"--ambient-caps={only}", f"--bounding-set={only}", "--securebits=+no_setuid_fixup", "--")
            yield Account(self.name, self.uid, self.gid, (str(setpriv), *drop, *keep))

    def _reaches(self, binaries: Path, folder: Path) -> bool:
        """Whether this account can enter and write the folder, and run programs that find each other."""
        probe = 'cd "$1" && test -w . && exec "$2/initdb" --show --pgdata="$1"'
        try:
            done = self.run(["/bin/sh", "-c", probe, "sh", str(folder), str(binaries)])
        except OSError:
            return False
        return done.returncode == 0

    def give(self, path: Path) -> None:
        """Make the account own a file that we wrote for it."""
        if self.uid >= 0:
            os.chown(path, self.uid, self.gid)

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a program to its end and return its output."""
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        return subprocess.run([*self.prefix, *command], **self._terms(), **pipes, check=False)

    def start(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a program as a session of its own, whose output is added to the log, and return at once."""
        with log.open("ab") as output:
            pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            return subprocess.Popen(
                [*self.prefix, *command], **self._terms(), **pipes, start_new_session=True
            )

    def _terms(self) -> dict[str, Any]:
        """A bare environment, so that no PG* variable of ours reaches the server, and the user to be."""
        bare = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
        drop = (
            {"user": self.uid, "group": self.gid, "extra_groups": []}
            if self.uid >= 0 and not self.prefix
            else {}
        )
        return {"env": bare, "cwd": "/", **drop}


def _unprivileged_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise EmbeddedError(
        "PostgreSQL must not run as root, and there is no user `postgres` or `nobody` to run it."
    )


def _hand_over(folder: Path, uid: int, gid: int) -> None:
    """Change the owner of a cluster folder and of all in it, if it is another's; the folder itself last."""
    if folder.stat().st_uid == uid:
        return
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(os.path.join(parent, name), uid, gid)
    os.chown(folder, uid, gid)
