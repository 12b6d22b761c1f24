"""Who may import whom: one direction, thin edges, a pure policy; and no package that hides the standard library's."""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "jobsplatform": ROOT / "jobsplatform",
    "tenants": ROOT / "tenants",
    "jobqueue": ROOT / "queue" / "jobqueue",
    "dlq": ROOT / "dlq",
}
ABOVE = {
    "jobsplatform": {"tenants", "jobqueue", "dlq"},
    "tenants": {"jobqueue", "dlq"},
    "jobqueue": {"dlq"},
    "dlq": set(),
}
EDGES = ("api", "admin", "management", "portal")
# Halves of an edge that operators' and members' pages have in common; edges may use them, verbs may not.
SHARED = {"tenants.doors", "tenants.urls", "tenants.forms", "dlq.forms", "jobqueue.depth_charts"}
# Programs that put the parts together; they are nobody's library.
PROGRAMS = {"jobqueue.demo", "jobqueue.bench", "jobqueue.receiver"}
# A body has one set of rules, whoever sends it: these read a form, a line or a file by the rules of the API's body.
BODY_RULES = {
    ("jobqueue.requests", "jobqueue.api"),
    ("tenants.forms", "tenants.api.tokens"),
    ("tenants.management.commands.createtoken", "tenants.api.tokens"),
    ("dlq.forms", "dlq.api.desk"),
}
HTTP = ("rest_framework", "drf_spectacular", "django.http", "django.contrib.admin", "django.views")


def _modules() -> list[tuple[str, Path]]:
    found = []
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            found.append((".".join(part for part in parts if part != "__init__"), path))
    return found


MODULES = _modules()


def _imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, also inside functions; a type checker's imports count too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_under(module: str, roots: tuple[str, ...] | set[str]) -> bool:
    return any(module == root or module.startswith(root + ".") for root in roots)


def _edge_of(module: str) -> str | None:
    if _is_under(module, SHARED):
        return "shared"
    package, _, rest = module.partition(".")
    name = rest.split(".")[0]
    return name if package in PACKAGES and name in EDGES else None


def _reads_a_body(module: str, imported: str) -> bool:
    return any(module == reader and _is_under(imported, {rules}) for reader, rules in BODY_RULES)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_lower_package_never_imports_a_higher_one(package: str) -> None:
    above = {higher for higher in ABOVE[package] if package != "jobsplatform"}
    faults = [
        f"{module} imports {imported}"
        for module, path in MODULES
        if module.split(".")[0] == package
        for imported in _imports(path)
        if _is_under(imported, above)
    ]
    assert faults == []


def test_the_platform_s_base_imports_no_app() -> None:
    """Only what puts the platform together knows the apps: routes, and programs that start others."""
    together = {"jobsplatform.urls", "jobsplatform.supervisor"}
    faults = [
        f"{module} imports {imported}"
        for module, path in MODULES
        if module.split(".")[0] == "jobsplatform" and module not in together
        for imported in _imports(path)
        if _is_under(imported, ABOVE["jobsplatform"])
    ]
    assert faults == []


def test_verbs_know_no_edge() -> None:
    faults = [
        f"{module} imports {imported}"
        for module, path in MODULES
        if module.split(".")[0] != "jobsplatform" and _edge_of(module) is None and module not in PROGRAMS
        for imported in _imports(path)
        if not _reads_a_body(module, imported)
        if _edge_of(imported)
        or (_is_under(imported, HTTP) and module not in ("tenants.access", "jobqueue.requests"))
    ]
    assert faults == []


def test_edges_of_different_kinds_never_import_each_other() -> None:
    faults = [
        f"{module} imports {imported}"
        for module, path in MODULES
        if (kind := _edge_of(module)) is not None
        for imported in _imports(path)
        if _edge_of(imported) not in (None, kind, "shared") and not _reads_a_body(module, imported)
    ]
    assert faults == []


def test_the_policy_imports_the_standard_library_alone() -> None:
    faults = [
        f"{module} imports {imported}"
        for module, path in MODULES
        if _is_under(module, ("jobqueue.policy",))
        for imported in _imports(path)
        if imported.split(".")[0] not in sys.stdlib_module_names
        and not imported.startswith("jobqueue.policy")
    ]
    assert faults == []


def test_queue_is_the_standard_library_s() -> None:
    import queue

    assert Path(str(queue.__file__)).is_relative_to(sysconfig.get_path("stdlib"))
    assert queue.Queue().empty()


def test_the_source_root_is_no_package() -> None:
    assert not (ROOT / "queue" / "__init__.py").exists()


def test_a_migration_imports_no_live_code() -> None:
    """What a migration did must not change with the code."""
    allowed = {"jobsplatform.migration", "jobsplatform.database"}
    faults = [
        f"{module} imports {imported}"
        for module, path in MODULES
        if ".migrations." in module
        for imported in _imports(path)
        if imported.split(".")[0] in PACKAGES and not _is_under(imported, allowed)
    ]
    assert [fault for fault in faults if ".models" not in fault and "database" not in fault] == []
