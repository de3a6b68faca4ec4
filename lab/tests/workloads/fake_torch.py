# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What `dlinput` uses of PyTorch, for tests without it: a loader in one process, and a GPU that is
none. A test makes it the package `torch` of a Python of its own, with other figures in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

HAS_GPU = False
BUSY_PERCENT: int | None = None
"""Of each device, as NVML says; None: there is no NVML."""

uint8 = "uint8"


class Tensor:
    def __init__(self, data: bytes, device: Any = None) -> None:
        self.data, self.device = data, device

    def numel(self) -> int:
        return len(self.data)

    def to(self, device: Any, *, non_blocking: bool) -> Tensor:
        return Tensor(self.data, device)


def frombuffer(buffer: bytearray, dtype: str) -> Tensor:
    assert dtype == uint8
    return Tensor(bytes(buffer))


def cat(tensors: list[Tensor]) -> Tensor:
    return Tensor(b"".join(one.data for one in tensors))


def device(kind: str, index: int) -> tuple[str, int]:  # noqa: A001 - its name in PyTorch
    return kind, index


def rand(rows: int, columns: int, device: Any) -> Tensor:
    return Tensor(bytes(rows * columns), device)


def empty_like(tensor: Tensor) -> Tensor:
    return Tensor(tensor.data, tensor.device)


def mm(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    assert left.device == right.device == out.device == ("cuda", 0)
    time.sleep(0.0005)
    return out


class cuda:  # noqa: N801 - a module of PyTorch
    @staticmethod
    def is_available() -> bool:
        return HAS_GPU

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def synchronize(device: Any) -> None:
        assert device == ("cuda", 0)

    @staticmethod
    def utilization(device: Any) -> int:
        assert device == ("cuda", 0)
        if BUSY_PERCENT is None:
            raise ModuleNotFoundError("No module named 'pynvml'")
        return BUSY_PERCENT


class DataLoader:
    def __init__(
        self,
        dataset: Any,
        *,
        batch_sampler: list[list[int]],
        num_workers: int,
        collate_fn: Callable[[list[Any]], Any],
        pin_memory: bool,
        **options: Any,
    ) -> None:
        assert num_workers >= 1
        assert pin_memory == HAS_GPU
        self._dataset, self._order, self._collate = dataset, batch_sampler, collate_fn

    def __iter__(self) -> Iterator[Any]:
        for numbers in self._order:
            yield self._collate([self._dataset[number] for number in numbers])
