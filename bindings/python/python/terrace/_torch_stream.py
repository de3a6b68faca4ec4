# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What `torch.save` writes to."""

from __future__ import annotations

from typing import Any


class SaveStream:
    """Keeps the first error of a write until `check`, and drops what is written after it.

    The writer of PyTorch writes its end after the exception of a write. With PyTorch 2 that raises
    another exception in place of the first; with PyTorch 1 it ends the process.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._position = 0
        self._error: BaseException | None = None

    def write(self, data: Any) -> int:
        count = memoryview(data).nbytes
        if self._error is None:
            try:
                self._file.write(data)
            except BaseException as error:
                self._error = error
        self._position += count
        return count

    def flush(self) -> None:
        """Does nothing: the file is flushed by its owner, after `check`."""

    def tell(self) -> int:
        return self._position

    def check(self) -> None:
        """Raises the error of a write."""
        if self._error is not None:
            raise self._error
