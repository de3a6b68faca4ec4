# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The meters of a run: their processes, and a thread that brings their gaps into the journal."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from terrace_lab.errors import LabError
from terrace_lab.journal import Journal
from terrace_lab.meters import process
from terrace_lab.meters.recorder import gap_limit_s
from terrace_lab.meters.segments import Tail, directory
from terrace_lab.records import now, read_lines
from terrace_lab.runner.place import Place
from terrace_lab.specs import HostSpec, MeterSpec

POLL_SECONDS = 0.5
JOURNALLED = {
    "gap_begin": "gap_begin",
    "gap_end": "gap_end",
    "skipped": "skipped",
    "stop": "meter_stop",
}
"""Events of meters, and what they are called in the journal."""
RESTART_SECONDS = 5.0
"""Between two attempts to start the process of a meter that is gone."""
PERIOD_SECONDS_UNKNOWN = 1.0


@dataclass(slots=True)
class _Followed:
    """What is known of one meter."""

    tail: Tail
    gap_since: int | None = None
    """Frames that had been read when the gap began that is open."""
    gaps: list[int] = field(default_factory=list)
    """CLOCK_REALTIME of each begin and end of a gap."""
    restart_at: float = 0.0
    cause: str | None = None
    """Of its last gap."""


class Watch:
    """Starts meters, follows them, and starts them again."""

    def __init__(
        self,
        place: Place,
        meters: Mapping[str, MeterSpec],
        hosts: Mapping[str, HostSpec],
        journal: Journal,
    ) -> None:
        self._place = place
        self._specs = meters
        self._hosts = {name: asdict(host) for name, host in hosts.items()}
        self._journal = journal
        # Tails begin at the begin of the record: what happened while there was no runner is
        # journalled now, what is in the journal is not written twice.
        self._meters = {name: _Followed(Tail(place.path, name)) for name in meters}
        self._known = _journalled(place)
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="watch", daemon=True)

    def start(self) -> None:
        """Starts what does not run yet; LabError where the process of a meter cannot be started."""
        process.touch_alive(self._place.path)
        for name in self._meters:
            if process.find_process(self._place.path, name) is None:
                self._start(name)
        self._thread.start()

    def stop(self) -> None:
        """Ends the processes and takes note of their last events."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        for name in self._meters:
            process.stop_process(self._place.path, name)
        with self._lock:
            self._take()

    def problem(self, names: Iterable[str]) -> str | None:
        """Why one of these meters is not to be relied on now; None where all deliver."""
        with self._lock:
            self._take()
            for name in names:
                newest = self._meters[name].tail.newest
                if newest is None:
                    cause = self._meters[name].cause or "and told no cause"
                    return f"meter {name} has delivered nothing yet: {cause}"
                age_s = (now().raw_ns - newest.raw_ns) / 1e9
                # Two periods; of a quick one also what a frame takes from the device to here.
                period_s = self.period_s(name)
                if age_s > max(2 * period_s, 0.5 * gap_limit_s(period_s)):
                    return f"meter {name} has delivered nothing for {age_s:.1f} s"
        return None

    def gap_since(self, since_real_ns: int, names: Iterable[str]) -> str | None:
        """Why what these meters have of the time since then is not whole; None where it is."""
        with self._lock:
            self._take()
            for name in names:
                meter = self._meters[name]
                if meter.gap_since is not None:
                    return f"meter {name} is in a gap"
                if any(at >= since_real_ns for at in meter.gaps):
                    return f"meter {name} had a gap"
        return None

    def period_s(self, name: str) -> float:
        """Time between two frames of a meter, as it said when it was opened."""
        info = self.info(name)
        return PERIOD_SECONDS_UNKNOWN if info is None else float(info["period_s"])

    def info(self, name: str) -> dict[str, Any] | None:
        """What a meter said of itself when it was opened; None before."""
        try:
            path = directory(self._place.path, name) / "info.json"
            return dict(json.loads(path.read_text()))
        except (OSError, ValueError):
            return None

    def _start(self, name: str) -> None:
        settings = self._specs[name].settings
        process.start_process(self._place.path, name, settings, self._hosts)

    def _follow(self) -> None:
        while not self._ending.wait(POLL_SECONDS):
            process.touch_alive(self._place.path)
            with self._lock:
                self._take()
                for name in self._meters:
                    self._revive(name)

    def _revive(self, name: str) -> None:
        """Starts a meter whose process is gone, which is a gap from its last frame."""
        meter = self._meters[name]
        if time.monotonic() < meter.restart_at:
            return
        if process.find_process(self._place.path, name) is not None:
            return
        meter.restart_at = time.monotonic() + RESTART_SECONDS
        if meter.gap_since is None:
            newest = meter.tail.newest
            since = newest.real_ns if newest else now().real_ns
            self._begin_gap(name, since, {"since": since, "cause": "its process is gone"})
        # What keeps it from starting is in its log, and the gap stays open.
        with contextlib.suppress(LabError):
            self._start(name)

    def _begin_gap(self, name: str, at_real_ns: int, fields: Mapping[str, Any]) -> None:
        meter = self._meters[name]
        meter.gap_since = meter.tail.frames
        meter.gaps.append(at_real_ns)
        self._journal.write("gap_begin", meter=name, **fields)

    def _take(self) -> None:
        """Brings what is new into the journal."""
        for name, meter in self._meters.items():
            for line in meter.tail.read():
                event = JOURNALLED.get(line["event"])
                if event is None:
                    continue
                at = int(line["real"])
                if event == "gap_begin":
                    meter.gap_since = meter.tail.frames
                    meter.cause = line.get("cause")
                elif event == "gap_end":
                    meter.gap_since = None
                if event in ("gap_begin", "gap_end"):
                    meter.gaps.append(at)
                if (name, event, at) not in self._known:
                    own = ("event", "real", "mono")
                    fields = {key: one for key, one in line.items() if key not in own}
                    self._journal.write(event, meter=name, at=at, **fields)
            if meter.gap_since is not None and meter.tail.frames > meter.gap_since:
                # Its process was gone, so that nobody else wrote the end of the gap.
                meter.gap_since = None
                newest = meter.tail.newest
                at = newest.real_ns if newest else now().real_ns
                meter.gaps.append(at)
                self._journal.write("gap_end", meter=name, at=at, cause="frames again")


def _journalled(place: Place) -> set[tuple[str, str, int]]:
    """Events of meters that the journal has."""
    if not place.journal.exists():
        return set()
    return {
        (line["meter"], line["event"], line["at"])
        for line in read_lines(place.journal)
        if "meter" in line and "at" in line
    }
