# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tables of an experiment file, read with errors that say where.

`Settings` wraps one table and records the keys that its reader asks for. `finish` refuses all other
keys, and names those that exist: a misspelt key is an error and not a default.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from terrace_lab.errors import SettingsError

_BYTES = {
    "B": 1,
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGTP", start=1)},
    **{f"{letter}B": 1000**power for power, letter in enumerate("kMGTP", start=1)},
}
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][0-9]+)?)\s*([A-Za-z]*)\s*\Z")


def parse_bytes(text: str | int | float) -> int:
    """A number of bytes: `4096`, `4e12`, `"64KiB"`, `"1.5GB"`; ValueError otherwise."""
    return round(_quantity(text, _BYTES, "bytes"))


def parse_seconds(text: str | int | float) -> float:
    """A time in seconds: `0.05`, `"20s"`, `"5min"`; ValueError otherwise."""
    return _quantity(text, _SECONDS, "a time")


def _quantity(text: str | int | float, units: Mapping[str, float], what: str) -> float:
    if isinstance(text, bool):
        raise ValueError(f"{text} is not {what}")
    if isinstance(text, int | float):
        if not 0 <= text < 1e18:
            raise ValueError(f"{text} is not {what}")
        return text
    match = _QUANTITY.match(text)
    unit = match[2] if match else ""
    if match is None or (unit and unit not in units):
        raise ValueError(f"{text!r} is not {what}, as in 4096 or 64{list(units)[1]}")
    value = float(match[1]) * units.get(unit, 1)
    if not value < 1e18:
        raise ValueError(f"{text!r} is not {what}: too large")
    return value


def right_names(wrong: str, known: Iterable[str]) -> str:
    """What an error about a wrong name says of the right ones; the nearest comes first."""
    names = list(known)
    near = difflib.get_close_matches(wrong, names, n=1)
    question = f"did you mean {near[0]!r}? " if near else ""
    return f"{question}known are {', '.join(names) or 'none'}"


def missing(what: str, name: str, known: Iterable[str]) -> str:
    """What an error says of a name that is not in the experiment."""
    return f"there is no {what} {name!r}; {right_names(name, known)}"


class Settings:
    """One table of an experiment file."""

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where = where
        self._values = dict(values)
        # In the order of the questions, which is that of the documentation.
        self._known: dict[str, None] = {}

    @property
    def values(self) -> Mapping[str, Any]:
        """The table as it is in the file; reading it counts as nothing read."""
        return self._values

    def __contains__(self, key: str) -> bool:
        self._known[key] = None
        return key in self._values

    def also_known(self, *keys: str) -> None:
        """Records keys that another reader has taken out of the table before."""
        self._known.update(dict.fromkeys(keys))

    def error(self, key: str, reason: str) -> SettingsError:
        """An error about one key, to be raised."""
        return SettingsError(f"{self.where}.{key}" if key else self.where, reason)

    def raw(self, key: str, default: Any = None) -> Any:
        """A value as it is in the file."""
        self._known[key] = None
        return self._values.get(key, default)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._required(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"must be text, not {value!r}")
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in choices:
            raise self.error(key, f"{value!r} is none of {', '.join(choices)}")
        return value

    def integer(self, key: str, default: int | None = None, *, least: int = 0) -> int:
        value = self._required(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.error(key, f"must be a whole number of at least {least}, not {value!r}")
        return value

    def number(self, key: str, default: float | None = None, *, least: float = 0.0) -> float:
        value = self._required(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value >= least:
            raise self.error(key, f"must be a number of at least {least:g}, not {value!r}")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._required(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {value!r}")
        return value

    def bytes(self, key: str, default: str | int | None = None) -> int:  # noqa: A003 - the quantity
        try:
            return parse_bytes(self._required(key, default))
        except (TypeError, ValueError) as error:
            raise self.error(key, str(error)) from None

    def seconds(self, key: str, default: str | float | None = None) -> float:
        try:
            return parse_seconds(self._required(key, default))
        except (TypeError, ValueError) as error:
            raise self.error(key, str(error)) from None

    def texts(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        value = self._required(key, default)
        if isinstance(value, str) or not all(isinstance(one, str) for one in value):
            raise self.error(key, f"must be a list of texts, not {value!r}")
        return tuple(value)

    def table(self, key: str) -> Settings:
        """A table below this one; empty where there is none."""
        value = self.raw(key, {})
        if not isinstance(value, dict):
            raise self.error(key, f"must be a table, not {value!r}")
        return Settings(f"{self.where}.{key}", value)

    def tables(self) -> dict[str, Settings]:
        """All tables below this one, by name."""
        return {key: self.table(key) for key in self._values}

    def finish(self) -> None:
        """Raises SettingsError where there is a key that the reader has not asked for."""
        for key in sorted(set(self._values) - set(self._known)):
            reason = f"there is no such setting here; {right_names(key, self._known)}"
            raise self.error(key, reason)

    def _required(self, key: str, default: Any) -> Any:
        value = self.raw(key, default)
        if value is None:
            raise self.error(key, "is missing")
        return value
