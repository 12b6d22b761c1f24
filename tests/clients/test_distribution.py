"""What the client's distribution promises: one dependency, types, and a core that does no I/O."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobsplatform_client import web
from tests.chaos.harness import ROOT

HOME = ROOT / "clients" / "python"
PACKAGE = HOME / "src" / "jobsplatform_client"
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
MODULES = sorted(PACKAGE.rglob("*.py"))

SHELLS = {"aio.py", "client.py", "web.py", "threads.py", "tasks.py"}
WAITS = {"asyncio", "socket", "select", "subprocess"}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_it_has_one_dependency() -> None:
    assert [one.split(">")[0] for one in PROJECT["dependencies"]] == ["httpx"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_it_imports_nothing_else(path: Path) -> None:
    optional = {"opentelemetry"} if path.name == "tracing.py" else set()  # where it is there: spans
    assert set(imports(path)) - sys.stdlib_module_names <= {"httpx", "jobsplatform_client"} | optional


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path.name not in SHELLS], ids=lambda path: path.stem
)
def test_only_the_shells_wait_and_talk(path: Path) -> None:
    allowed = {"socket"} if path.name == "desk.py" else set()  # this machine's name
    assert set(imports(path)) & (WAITS | {"httpx"}) <= allowed


def test_it_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_it_says_its_version() -> None:
    headers = web.options("http://platform", "jp_1_s", None)["headers"]
    assert headers["User-Agent"] == f"{PROJECT['name']}/{PROJECT['version']}"


@pytest.mark.parametrize("url", ["http://platform:8000", "http://platform:8000/", "http://platform:8000/v1"])
def test_an_address_may_end_as_the_documents_show_it(url: str) -> None:
    assert web.options(url, "jp_1_s", None)["base_url"] == "http://platform:8000"


def test_a_token_is_never_shown_by_a_lease() -> None:
    from tests.clients.test_desk import lease

    assert "lease_token" not in repr(lease(1))
