# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Objects that are on the fast tier when a loader asks for them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from terrace._errors import Busy, Error

if TYPE_CHECKING:
    from terrace._store import Store

# How soon the prefetcher sees that its loader has ended.
_PAUSE_S = 0.05
# How often and how long the end waits for migrations, before objects are brought back.
_END_TURNS_MAX = 20
_END_WAIT_S = 1.0


class Prefetcher:
    """Promotes the objects of batches ahead of their use, and brings them back behind it. A batch
    is the names of its samples; `object_of` gives the object of one, or `None` where it has none.

    Workers have asked for `asked_batches` that were not used yet: the window begins behind these.
    The first of them are asked for at once, and read from where they are.
    """

    def __init__(
        self,
        store: Store,
        batches: Iterable[list[str]],
        object_of: Callable[[str], str | None],
        tier: str,
        window_samples: int,
        asked_batches: int,
        keep: bool,
    ) -> None:
        self._admin = store.admin()
        self._object_of = object_of
        self._tier = tier
        self._keep = keep
        self._coming = deque(batches)
        self._used = 0
        self._failures = 0
        self._is_closed = False
        self._changed = threading.Condition()
        # How often each sample will still be used: its object is brought back after the last time.
        self._left = Counter(name for batch in self._coming for name in batch)
        asked = min(asked_batches, len(self._coming))
        # Batches that were not used yet, and were asked for or promoted.
        self._ahead = deque(self._coming.popleft() for _ in range(asked))
        self._ahead_samples = sum(map(len, self._ahead))
        self._ahead_samples_max = self._ahead_samples + window_samples
        # The promoted objects of samples, and where they were.
        self._origin: dict[str, tuple[str, str]] = {}
        # To be promoted and to be brought back, once they do not move any more, and the kernel does
        # not read them past the store, as it does the open files of a mount.
        self._busy: list[str] = []
        self._back: list[str] = []
        self._thread = threading.Thread(target=self._run, name="terrace-prefetch", daemon=True)
        self._thread.start()

    def used(self) -> None:
        """One more batch was used."""
        with self._changed:
            self._used += 1
            self._changed.notify()

    def close(self) -> int:
        """Ends, brings back what was promoted, and returns the number of failures."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        return self._failures

    def _run(self) -> None:
        while True:
            with self._changed:
                is_closed, used, self._used = self._is_closed, self._used, 0
            for _ in range(min(len(self._ahead), used)):
                batch = self._ahead.popleft()
                self._ahead_samples -= len(batch)
                self._left.subtract(batch)
                self._back += [name for name in batch if self._left[name] == 0]
            if is_closed:
                self._end()
                return
            self._back = self._bring_back(self._back)
            self._busy = [one for one in self._busy if self._left[one] and not self._promote(one)]
            room = self._ahead_samples_max - self._ahead_samples
            if self._coming and (not self._ahead or len(self._coming[0]) <= room):
                batch = self._coming.popleft()
                self._busy += [name for name in batch if not self._promote(name)]
                self._ahead_samples += len(batch)
                self._ahead.append(batch)
                continue
            with self._changed:
                if not self._is_closed and self._used == 0:
                    self._changed.wait(_PAUSE_S)

    def _promote(self, name: str) -> bool:
        """Returns whether it need not be tried again."""
        if name in self._origin:
            return True
        try:
            key = self._object_of(name)
            if key is None:
                return True
            elsewhere = {one.tier for one in self._admin.explain(key).segments} - {self._tier}
            if elsewhere:
                self._admin.promote(key, self._tier)
                self._origin[name] = key, min(elsewhere)
        except Busy:
            return False
        except OSError:
            self._failures += 1
        return True

    def _bring_back(self, names: list[str]) -> list[str]:
        """Returns those that are still on their way to the fast tier."""
        moving = []
        for name in names:
            if name not in self._origin or self._keep:
                continue
            key, tier = self._origin[name]
            try:
                # Before its promotion has ended there is nothing to bring back yet.
                if any(one.moving for one in self._admin.explain(key).segments):
                    moving.append(name)
                    continue
                self._admin.migrate(key, tier)
            except Busy:
                moving.append(name)
            except Error:
                self._failures += 1
            else:
                del self._origin[name]
        return moving

    def _end(self) -> None:
        moving = self._bring_back(list(self._origin))
        for _ in range(_END_TURNS_MAX):
            if not moving:
                return
            with contextlib.suppress(Error):
                self._admin.wait_idle(_END_WAIT_S)
            # The kernel closes files a moment after their programs.
            time.sleep(_PAUSE_S)
            moving = self._bring_back(moving)
        self._failures += len(moving)
