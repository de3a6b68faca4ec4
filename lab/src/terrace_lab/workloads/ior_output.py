# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads what IOR prints: its table as versions 3.0 to 4.1 have it, or its JSON, broken or not.

JSON of several versions lacks brackets or has them twice, and has lines of text in it; the
innermost objects, one for each access, are whole in all of them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from terrace_lab.errors import ParseError

_OBJECT = re.compile(r"\{[^{}]*\"access\"[^{}]*\}")
_MOVED = re.compile(r"WARNING: Using actual aggregate bytes moved = (\d+)")
_VERSION = re.compile(r"^IOR-(\S+?):", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Access:
    """One line of results."""

    mib_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Output:
    version: str
    access: Access
    bytes_moved: int | None
    """Where IOR found another number than it expected."""
    notes: list[str]


def parse(text: str, access: str) -> Output:
    """The one `access`, write or read, that a run was to do; `ParseError` otherwise."""
    errors = [line.strip() for line in text.splitlines() if re.match(r"\s*(ior )?ERROR", line)]
    if errors:
        raise ParseError(f"cannot read the output of ior: it has an error {errors[0]!r}")
    found = _of_table(text, access) or _of_json(text, access)
    if len(found) != 1:
        raise ParseError(
            f"cannot read the output of ior: {len(found)} results of {access} "
            f"begins={text.strip()[:80]!r}"
        )
    if not (found[0].mib_s > 0 and found[0].total_s > 0):
        raise ParseError(f"cannot read the output of ior: no time or no rate of {access}")
    moved = _MOVED.search(text)
    version = _VERSION.search(text)
    return Output(
        version=version[1] if version else "unknown",
        access=found[0],
        bytes_moved=int(moved[1]) if moved else None,
        notes=[line.strip() for line in text.splitlines() if "WARNING" in line],
    )


def parse_all(text: str, access: str) -> list[Access]:
    """The results of one `access` in all repetitions of a run; `ParseError` where there is none."""
    found = _of_table(text, access) or _of_json(text, access)
    if not found or not all(one.mib_s > 0 and one.total_s > 0 for one in found):
        raise ParseError(
            f"cannot read the output of ior: no whole result of {access} "
            f"begins={text.strip()[:80]!r}"
        )
    return found


def _of_table(text: str, access: str) -> list[Access]:
    """Lines below the heading, whose columns are more in later versions."""
    found = []
    columns: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["access", "bw(MiB/s)"]:
            columns = words
        elif line.startswith("Summary of all tests"):
            # Another table, whose lines begin with the same words.
            columns = []
        elif columns and words[:1] == [access]:
            if len(words) != len(columns):
                raise ParseError(f"cannot read the output of ior: another table {line.strip()!r}")
            found.append(_access(*(words[columns.index(one)] for one in ("bw(MiB/s)", "total(s)"))))
    return found


def _of_json(text: str, access: str) -> list[Access]:
    found = []
    for match in _OBJECT.finditer(text):
        try:
            # Some versions end a list of members with a comma.
            one = json.loads(re.sub(r",\s*\}", "}", match[0]))
        except ValueError:
            raise ParseError(
                f"cannot read the output of ior: a result is no JSON {match[0][:80]!r}"
            ) from None
        if one["access"] == access:
            found.append(_access(one.get("bwMiB"), one.get("totalTime")))
    return found


def _access(mib_s: object, total_s: object) -> Access:
    try:
        return Access(float(str(mib_s)), float(str(total_s)))
    except ValueError:
        raise ParseError(
            f"cannot read the output of ior: no numbers rate={mib_s!r} time={total_s!r}"
        ) from None
