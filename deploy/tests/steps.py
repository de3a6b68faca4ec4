# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Steps of a test that are printed with what they took, and a bound on all of them together."""

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))

from testbed import Host, TestBed, TestBedError, make_image, run  # noqa: E402

__all__ = ["Host", "TestBed", "TestBedError", "bound", "expect", "make_image", "run", "step"]


@contextlib.contextmanager
def step(text: str) -> Iterator[None]:
    """Prints what is done, and how long it took."""
    print(f"- {text}", end="", flush=True)
    begun = time.monotonic()
    try:
        yield
    except BaseException:
        print(f": failed after {time.monotonic() - begun:.1f} s", flush=True)
        raise
    print(f": {time.monotonic() - begun:.1f} s", flush=True)


def bound(seconds: int) -> None:
    """Ends the test with an error after so many seconds, wherever it is; contexts are left as usual."""

    def give_up(*_: object) -> None:
        raise TestBedError(f"the test took more than {seconds} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.alarm(seconds)


def expect(holds: bool, text: object) -> None:
    if not holds:
        raise TestBedError(f"not as expected: {text}")
