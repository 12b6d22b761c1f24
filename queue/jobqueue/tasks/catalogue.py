"""Which tasks there are: those that the site's own task modules hold, found before any job names one.

A payload's path is only ever looked up here. It is never imported, so whoever may enqueue can choose among the
site's tasks and nothing else.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from jobqueue.tasks.framework import Task


def tasks_of(names: Sequence[str] | None) -> Mapping[str, Any]:
    """Module path → task, of the modules of these names; None: `tasks` of every installed app, with its submodules.

    The modules are looked for once. Raises ImportError for one that cannot be imported.
    """
    found: dict[str, Any] = {}
    apps.check_apps_ready()
    for module in _modules(None if names is None else tuple(names), tuple(apps.app_configs)):
        found.update((one.module_path, one) for one in vars(module).values() if isinstance(one, Task))
    return found


@cache
def _modules(names: tuple[str, ...] | None, labels: tuple[str, ...]) -> tuple[ModuleType, ...]:
    """`labels` of the installed apps are there for the memory: other apps are another answer."""
    if names is not None:
        return tuple(map(import_module, names))
    found: list[ModuleType] = []
    for app in apps.get_app_configs():
        if app.name != "jobqueue" and app.module is not None and module_has_submodule(app.module, "tasks"):
            found += _with_submodules(import_module(f"{app.name}.tasks"))
    return tuple(found)


def _with_submodules(module: ModuleType) -> Iterator[ModuleType]:
    yield module
    for _, name, _ in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{module.__name__}."):
        yield import_module(name)
