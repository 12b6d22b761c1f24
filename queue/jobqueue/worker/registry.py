"""Which function runs a kind of job, and what its code declares of it.

Handlers are found in the `handlers.py` of each installed app.

No Django import at module level: `from jobqueue import handler` works before set-up.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from jobqueue.declarations import KIND, Declaration, Declared

if TYPE_CHECKING:
    from jobqueue.worker.context import JobContext

Handler = Callable[["JobContext"], object]
H = TypeVar("H", bound=Callable[..., object])

_handlers: dict[str, Handler] = {}
_declared: dict[str, Declared] = {}


def handler(
    kind: str,
    *,
    reconcile: Handler | None = None,
    external_effects: bool = False,
    schema: Mapping[str, Any] | None = None,
    max_attempts: int | None = None,
    backoff_base_s: float | None = None,
    backoff_cap_s: float | None = None,
    queue: str | None = None,
    dependency: str | None = None,
    cost_hint_s: float | None = None,
) -> Callable[[H], H]:
    """Register the decorated function for jobs of `kind`. It takes a `JobContext` and returns a JSON value.

    `reconcile` finds out what an earlier attempt did outside, before this one may act: it takes the same argument and
    returns `Done`, `NotDone` or `StillUnknown`. A kind with `external_effects` needs one. `schema` is the JSON Schema
    of its payloads. The others are used where a request names none; without them the queue's settings hold.

    Raises TypeError for anything but plain functions of one argument, ValueError for a bad or taken kind or setting,
    and for external effects that nothing reconciles.
    """
    if not isinstance(kind, str):
        raise TypeError('@handler takes the kind of job: write @handler("email.send") above the function')
    if KIND.fullmatch(kind) is None:
        raise ValueError(f"{kind!r} is no kind of job: up to 64 of a-z 0-9 . _ -, first a letter or digit")
    if external_effects and reconcile is None:
        raise ValueError(
            f"kind {kind!r} acts outside: give it reconcile=…, which finds out what a lost attempt did"
            " (safe_to_repeat, where the receiver dedupes on the operation id)"
        )
    if reconcile is not None:
        _refuse_unusable(f"{kind} (reconcile)", reconcile)
    try:
        declaration = Declaration(
            payload_schema=schema,
            external_effects=external_effects,
            max_attempts=max_attempts,
            backoff_base_s=backoff_base_s,
            backoff_cap_s=backoff_cap_s,
            queue=queue,
            dependency=dependency,
            cost_hint_s=cost_hint_s,
        )
    except ValueError as error:
        raise ValueError(f"kind {kind!r}: {error}") from error

    def register(function: H) -> H:
        _refuse_unusable(kind, function)
        known = _handlers.get(kind)
        if known is not None and _name(known) != _name(function):
            raise ValueError(f"kind {kind!r} has two handlers: {_name(known)} and {_name(function)}")
        _handlers[kind] = function
        _declared[kind] = Declared(_name(function), declaration, reconcile)
        return function

    return register


def handlers() -> Mapping[str, Handler]:
    """Every registered kind with its function (a live, read-only view)."""
    return MappingProxyType(_handlers)


def declared() -> dict[str, Declared]:
    """What the code of each registered kind declares."""
    return {kind: one for kind, one in _declared.items() if kind in _handlers}


def declared_of(kind: str) -> Declared | None:
    """What the code of a kind declares; None: it has no handler here."""
    return _declared.get(kind)


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
