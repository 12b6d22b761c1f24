"""Where peers live: an environment of its own for each under `.data/bench/`, never in our lock file."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.bed import ROOT
from benchmarks.peers.catalog import Peer

FOLDER: Final = ROOT / ".data" / "bench"
HERE: Final = Path(__file__).resolve().parent
NODE_MIN: Final = 20
INSTALL_SECONDS_MAX: Final = 300


class Missing(Exception):
    """A peer cannot be had here; one line says why."""


def command_of(peer: Peer) -> list[str]:
    """How to start its adapter; installs what is not there yet. Raises Missing."""
    if peer.is_node:
        return [_node_with(peer.packages), str(HERE / peer.adapter)]
    python = python_with(peer.packages, peer.python_min) if peer.packages else sys.executable
    return [python, "-m", f"benchmarks.peers.{peer.adapter}"]


def python_with(packages: Sequence[str], at_least: tuple[int, int] = (3, 11)) -> str:
    """The interpreter of a virtual environment with these packages; made if need be. Raises Missing."""
    folder = FOLDER / "python" / _slug(packages[0])
    python, stamp, wanted = folder / "bin" / "python", folder / "packages", "\n".join(packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return str(python)
    shutil.rmtree(folder, ignore_errors=True)
    if sys.version_info[:2] >= at_least:
        venv.create(folder, with_pip=True)
    else:
        _run([_interpreter(at_least), "-m", "venv", str(folder)])
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
    stamp.write_text(wanted)
    return str(python)


def _interpreter(at_least: tuple[int, int]) -> str:
    names = [f"python3.{minor}" for minor in range(at_least[1], at_least[1] + 4)]
    pyenv = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    places = [shutil.which(name) for name in names]
    places += [place for name in names for place in sorted(glob.glob(f"{pyenv}/versions/*/bin/{name}"))]
    for place in places:
        if place and subprocess.run([place, "-c", ""], capture_output=True, check=False).returncode == 0:
            return place
    raise Missing(f"needs Python {'.'.join(map(str, at_least))} or newer")


def _node_with(packages: Sequence[str]) -> str:
    """The program `node`, after these packages were put into their folder (BENCH_NODE_FOLDER of adapters)."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        raise Missing("node and npm are not on this machine")
    release = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    if int("0" + release.strip("v\n").partition(".")[0]) < NODE_MIN:
        raise Missing(f"needs Node {NODE_MIN} or newer, not {release.strip()}")
    folder, wanted = node_folder(), "\n".join(packages)
    stamp = folder / "packages"
    if not (stamp.exists() and stamp.read_text() == wanted):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}\n')
        _run(["npm", "install", "--silent", "--no-fund", "--no-audit", *packages], folder)
        stamp.write_text(wanted)
    return node


def node_folder() -> Path:
    return FOLDER / "node"


def _slug(package: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in package)


def _run(command: Sequence[str], folder: Path | None = None) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX
        )
    except FileNotFoundError as error:
        raise Missing(f"there is no {error.filename}") from error
    except subprocess.TimeoutExpired as error:
        raise Missing(f"{command[0]} took over {INSTALL_SECONDS_MAX} s") from error
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or "").strip().splitlines()
        raise Missing(lines[-1] if lines else f"{command[0]} ended with {error.returncode}") from error
