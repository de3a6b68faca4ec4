# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What tests read out of a record, and how they wait for it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from terrace_lab.errors import MeterLost
from terrace_lab.meters import registry
from terrace_lab.meters.base import Frame, Meter
from terrace_lab.meters.process import start_process, stop_process
from terrace_lab.meters.segments import segments
from terrace_lab.records import Sample, read_lines
from terrace_lab.settings import Settings

WAIT_SECONDS = 20.0


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Returns once it is so; fails after a bound that no healthy machine needs."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {WAIT_SECONDS:g} s: {what}")
        time.sleep(0.005)


def lines(run: Path, name: str) -> list[dict[str, Any]]:
    return [line for path in segments(run, name) for line in read_lines(path)]


def events(run: Path, name: str) -> list[dict[str, Any]]:
    return [line for line in lines(run, name) if "event" in line]


def frames(run: Path, name: str) -> list[dict[str, Any]]:
    return [line for line in lines(run, name) if "samples" in line]


def samples(run: Path, name: str) -> list[Sample]:
    return [Sample.from_json(one) for frame in frames(run, name) for one in frame["samples"]]


@contextlib.contextmanager
def recording(
    run: Path,
    name: str,
    settings: Mapping[str, Any],
    hosts: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[None]:
    """Runs the process of a meter around a test."""
    start_process(run, name, settings, hosts)
    try:
        yield
    finally:
        stop_process(run, name)


def meter(settings: Mapping[str, Any], name: str = "m") -> Meter:
    return registry.create(name, Settings(f"meters.{name}", settings))


def read(one: Meter, count: int) -> list[Frame]:
    """Opens a meter, reads so many frames and closes it."""
    one.open()
    try:
        stream = one.stream()
        return [next(stream) for _ in range(count)]
    finally:
        one.close()


def samples_of(frames: list[Frame]) -> list[Sample]:
    return [sample for frame in frames for sample in frame.samples]


def lost(one: Meter) -> str:
    """Reads a meter until it says that it is lost, and how it says that."""
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        one.open()
        for _ in one.stream():
            assert time.monotonic() < deadline, "it is not lost"
    except MeterLost as error:
        return str(error)
    finally:
        one.close()
    pytest.fail("it came to an end")
