"""An exception as the text that an attempt keeps, and back: first its path and words, then its traceback.

The first line is what dead letters are grouped by. Pure; the inverse never fails, whatever text it is given.
"""

from __future__ import annotations

import re
from traceback import format_exception
from typing import Final, NamedTuple

from jobqueue.limits import MESSAGE_BYTES_MAX

CUT: Final = "\n  … cut …\n"
FIRST_LINE_CHARS_MAX: Final = 500
_PATH = re.compile(r"([A-Za-z_][\w.]*)(?:: |$)")


class Told(NamedTuple):
    """What the text says; `path` None: it is no exception of a task's."""

    path: str | None
    traceback: str


def write(error: BaseException) -> str:
    """At most 8 KiB: of a longer traceback the middle is cut, for its end says where and what."""
    try:
        words = str(error)
    except Exception as failure:  # an exception class may be broken in any way
        words = f"(its text failed with {type(failure).__name__})"
    kind = type(error)
    first = f"{kind.__module__}.{kind.__qualname__}: {words}".splitlines()[0][:FIRST_LINE_CHARS_MAX]
    try:
        trace = "".join(format_exception(error))
    except Exception:
        trace = f"{kind.__qualname__}: {words}\n"
    return f"{first}\n{_cut(trace, MESSAGE_BYTES_MAX - len(first.encode('utf-8', 'replace')) - 1)}"


def read(message: str) -> Told:
    first, _, rest = message.partition("\n")
    match = _PATH.match(first)
    if match is None or "." not in match[1]:
        return Told(None, message)
    return Told(match[1], rest or first)


def _cut(trace: str, bytes_max: int) -> str:
    data = trace.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return trace
    head = bytes_max // 4
    tail = bytes_max - head - len(CUT.encode())
    return data[:head].decode("utf-8", "ignore") + CUT + data[-tail:].decode("utf-8", "ignore")
