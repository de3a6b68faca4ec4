# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A stand-in for ipmitool."""

from __future__ import annotations

from pathlib import Path

READING = """
    Instantaneous power reading:                   216 Watts
    Minimum during sampling period:                 19 Watts
    Maximum during sampling period:                469 Watts
    Average power reading over sample period:      164 Watts
    IPMI timestamp:                           Sun Nov 22 12:04:09 2026
    Sampling period:                          00000005 Seconds.
    Power reading state is:                   activated

"""


def make_ipmitool(directory: Path, body: str | None = None) -> Path:
    """A program that notes its arguments and prints a reading, or does what `body` says."""
    (directory / "reading.txt").write_text(READING)
    path = directory / "ipmitool"
    body = f"cat {directory}/reading.txt" if body is None else body
    path.write_text(f'#!/bin/sh\necho "$*" >> {directory}/arguments.txt\n{body}\n')
    path.chmod(0o755)
    return path
