"""Reads tables of a TOML document strictly: a wrong type, an unknown key or a value out of bounds is named."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any


class SetupError(ValueError):
    """What is wrong with a setup, and where."""


class Table:
    """A table of which each key is read once; `close` refuses what nobody asked for."""

    def __init__(self, values: object, where: str) -> None:
        if not isinstance(values, Mapping):
            raise SetupError(f"{where} is a table.")
        self.left: dict[str, Any] = dict(values)
        self.where = where

    def __contains__(self, key: str) -> bool:
        return key in self.left

    def wrong(self, key: str, what: str) -> SetupError:
        return SetupError(f"{self.where}: {key} is {what}.")

    def number(self, key: str, default: float | None = None, *, least: float = 0.0) -> float:
        """A finite number of at least `least`; without a default the key is needed."""
        value = self.left.pop(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (math.isfinite(value) or value == default) or value < least:
            raise self.wrong(key, f"a number of at least {least:g}")
        return float(value)

    def optional_number(self, key: str) -> float | None:
        return self.number(key) if key in self.left else None

    def whole(self, key: str, default: int | None = None, *, least: int = 0) -> int:
        value = self.left.pop(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.wrong(key, f"a whole number of at least {least}")
        return value

    def optional_whole(self, key: str, *, least: int = 0) -> int | None:
        return self.whole(key, least=least) if key in self.left else None

    def text(self, key: str, default: str | None = None, *, among: Collection[str] = ()) -> str:
        value = self.left.pop(key, default)
        if not isinstance(value, str) or not value or (among and value not in among):
            raise self.wrong(key, f"one of {', '.join(sorted(among))}" if among else "a text")
        return value

    def flag(self, key: str) -> bool:
        value = self.left.pop(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def texts(self, key: str) -> list[str]:
        value = self.left.pop(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise self.wrong(key, "a list of texts")
        return value

    def tables(self, key: str) -> list[Table]:
        value = self.left.pop(key, [])
        if not isinstance(value, list):
            raise self.wrong(key, "a list of tables")
        return [Table(one, f"{key} {number}") for number, one in enumerate(value, start=1)]

    def table(self, key: str) -> Table:
        return Table(self.left.pop(key, {}), key)

    def close(self) -> None:
        if self.left:
            raise SetupError(f"{self.where}: there is no {', '.join(sorted(self.left))}.")
