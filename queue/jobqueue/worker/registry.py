"""Which function runs a kind of job. Handlers are found in the `handlers.py` of each installed app.

No Django import at module level: `from jobqueue import handler` works before set-up.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from jobqueue.worker.context import JobContext

Handler = Callable[["JobContext"], object]
H = TypeVar("H", bound=Callable[..., object])

KIND = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

_handlers: dict[str, Handler] = {}


def handler(kind: str) -> Callable[[H], H]:
    """Register the decorated function for jobs of `kind`. It takes a `JobContext` and returns a JSON value.

    Raises TypeError for anything but a plain function of one argument, ValueError for a bad or taken kind.
    """
    if not isinstance(kind, str):
        raise TypeError('@handler takes the kind of job: write @handler("email.send") above the function')
    if KIND.fullmatch(kind) is None:
        raise ValueError(f"{kind!r} is no kind of job: up to 64 of a-z 0-9 . _ -, first a letter or digit")

    def register(function: H) -> H:
        _refuse_unusable(kind, function)
        known = _handlers.get(kind)
        if known is not None and _name(known) != _name(function):
            raise ValueError(f"kind {kind!r} has two handlers: {_name(known)} and {_name(function)}")
        _handlers[kind] = function
        return function

    return register


def handlers() -> Mapping[str, Handler]:
    """Every registered kind with its function (a live, read-only view)."""
    return MappingProxyType(_handlers)


def discover() -> Mapping[str, Handler]:
    """Import `handlers.py` of each installed app, and its tasks (Django must be set up); returns what is registered."""
    from django.utils.module_loading import autodiscover_modules

    from jobqueue.tasks import discovery

    autodiscover_modules("handlers")
    discovery.register()
    return handlers()


def _refuse_unusable(kind: str, function: Callable[..., object]) -> None:
    if not callable(function):
        raise TypeError(f"the handler of {kind!r} is not callable")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"the handler of {kind!r} is async; handlers run in threads: use asyncio.run() inside it"
        )
    if inspect.isgeneratorfunction(function):
        raise TypeError(f"the handler of {kind!r} is a generator; a handler returns one JSON value")
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise TypeError(f"the handler of {kind!r} must take exactly one argument, the job") from error
    except ValueError:
        pass  # a C function without a signature: it shows at the first job


def _name(function: Callable[..., object]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"
