"""Which tasks there are: those that the site's own task modules hold, found before any job names one.

A payload's path is only ever looked up here. It is never imported, so whoever may enqueue can choose among the
site's tasks and nothing else.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from jobqueue.tasks.framework import Task


def tasks_of(names: Sequence[str] | None) -> Mapping[str, Any]:
    """Module path → task, of the modules of these names; None: `tasks` of every installed app, with its submodules.

    Read anew at each call, the modules' import aside. Raises ImportError for a module that cannot be imported.
    """
    found: dict[str, Any] = {}
    for module in _modules(names):
        found.update((one.module_path, one) for one in vars(module).values() if isinstance(one, Task))
    return found


def _modules(names: Sequence[str] | None) -> Iterator[ModuleType]:
    if names is not None:
        yield from map(import_module, names)
        return
    for app in apps.get_app_configs():
        if app.name != "jobqueue" and app.module is not None and module_has_submodule(app.module, "tasks"):
            yield from _with_submodules(import_module(f"{app.name}.tasks"))


def _with_submodules(module: ModuleType) -> Iterator[ModuleType]:
    yield module
    for _, name, _ in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{module.__name__}."):
        yield import_module(name)
