"""A task's priority (-100 to 100, larger is more urgent) as a band of its queue (0 is the most urgent). Pure.

Up to 19 from zero it is the queue's default band. Beyond, the range from 20 to 100 is shared evenly among the bands
above the default one, and that from -20 to -100 among those below: with five bands and default 2, 60 and more is
band 0, 20 band 1, -20 band 3, -60 and less band 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NEAR: Final = 20  # so far from zero the default band ends
SPAN: Final = 80  # from there to the end of the scale


def band_of(priority: int, *, bands: int, default: int) -> int:
    """The band's index in a queue of `bands` bands whose default is `default`."""
    if priority > 0:
        return default - _steps(priority, default)
    return default + _steps(-priority, bands - 1 - default)


def chosen(priority: int, table: Mapping[int, int | str]) -> int | str:
    """The band that a table names: the entry with the largest key that is not above `priority`.

    A priority below all keys gets the entry of the smallest.
    """
    return table[max((key for key in table if key <= priority), default=min(table))]


def _steps(distance: int, bands: int) -> int:
    if distance < NEAR or not bands:
        return 0
    return min(1 + (distance - NEAR) * bands // SPAN, bands)
