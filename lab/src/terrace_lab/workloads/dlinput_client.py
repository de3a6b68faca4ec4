# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One client of `dlinput`: writes, reads or checks samples. Runs on its host alone, Python 3.9.

    python3 - VERB <<<CONFIGURATION... prints one JSON object

Samples are found by arithmetic alone: their sizes follow from the seed, so that no index is read.
Each begins with its number, the length and the CRC-32 of what follows.
"""

from __future__ import annotations

import collections
import json
import math
import os
import queue
import random
import struct
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

Configuration = dict[str, Any]

_HEAD = struct.Struct("<QQI4x")
_BLOCK_BYTES = 1 << 20
# So that neighbours do not begin with the same bytes.
_STRIDE = 7919
PREFETCHED_BATCHES = 2
"""Batches that each worker has ready, as data loaders do."""
INTERVAL_S = 0.1
"""How finely it is recorded how busy the accelerator is, at best, and how often NVML is asked."""
POINTS_MAX = 512
MATRIX_ROWS = 1024
"""Of what a GPU multiplies: some 2 GFLOP, far below a millisecond."""


class Broken(Exception):
    """A sample is not what was written."""


class DataSet:
    """Where each sample is, and what is in it."""

    def __init__(self, configuration: Configuration) -> None:
        self.directory: str = configuration["directory"]
        self.per_file: int = configuration["samples_per_file"]
        self.samples: int = configuration["samples"]
        chance = random.Random(configuration["seed"])
        mean, deviation = configuration["sample_bytes"], configuration["sample_sd"]
        least = _HEAD.size + 1
        self.sizes = [
            max(least, round(chance.gauss(mean, deviation) if deviation else mean))
            for _ in range(self.samples)
        ]
        self.offsets: list[int] = []
        for number in range(self.samples):
            first = number % self.per_file == 0
            before = 0 if first else self.offsets[-1] + self.sizes[number - 1]
            self.offsets.append(before)
        self._block = random.Random(configuration["seed"] + 1).randbytes(_BLOCK_BYTES)

    def files(self) -> int:
        return -(-self.samples // self.per_file)

    def path(self, file: int) -> str:
        # A thousand files in a directory: some systems are slow with more.
        return os.path.join(self.directory, f"{file // 1000:04}", f"{file:08}")

    def content(self, number: int) -> bytes:
        length = self.sizes[number] - _HEAD.size
        start = number * _STRIDE % _BLOCK_BYTES
        turned = self._block[start:] + self._block[:start]
        payload = (turned * (length // _BLOCK_BYTES + 1))[:length]
        return _HEAD.pack(number, length, zlib.crc32(payload)) + payload

    def write(self, file: int) -> int:
        path = self.path(file)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        first = file * self.per_file
        written = 0
        with open(path, "wb") as out:
            for number in range(first, min(first + self.per_file, self.samples)):
                written += out.write(self.content(number))
            out.flush()
            os.fsync(out.fileno())
        return written

    def read(self, number: int, buffer: bytearray) -> int:
        """Reads a sample to the begin of `buffer`; `Broken` where another one is there."""
        size = self.sizes[number]
        view = memoryview(buffer)[:size]
        descriptor = os.open(self.path(number // self.per_file), os.O_RDONLY)
        try:
            done = 0
            while done < size:
                count = os.preadv(descriptor, [view[done:]], self.offsets[number] + done)
                if count == 0:
                    raise Broken(f"sample {number} ends after {done} of {size} bytes")
                done += count
        finally:
            os.close(descriptor)
        found, length, _ = _HEAD.unpack_from(buffer)
        if (found, length) != (number, size - _HEAD.size):
            raise Broken(f"sample {number} is not there but sample {found} of {length} bytes")
        return size

    def check(self, number: int, buffer: bytearray) -> None:
        size = self.read(number, buffer)
        _, _, expected = _HEAD.unpack_from(buffer)
        found = zlib.crc32(memoryview(buffer)[_HEAD.size : size])
        if found != expected:
            raise Broken(f"sample {number} has checksum {found:08x} and not {expected:08x}")


def bin_of(ns: int) -> int:
    """The same for all latencies within some 2 %."""
    shift = max(0, ns.bit_length() - 6)
    return ns >> shift << shift


def write(configuration: Configuration, data: DataSet) -> dict[str, Any]:
    """This client's share of the files."""
    mine = range(configuration["client"], data.files(), configuration["clients"])
    return {"bytes": sum(data.write(file) for file in mine)}


def check(configuration: Configuration, data: DataSet) -> dict[str, Any]:
    """Another client's share, each sample with its checksum."""
    buffer = bytearray(max(data.sizes))
    other = (configuration["client"] + 1) % configuration["clients"]
    mine = range(other, data.samples, configuration["clients"])
    for number in mine:
        data.check(number, buffer)
    return {"samples": len(mine)}


def batches(configuration: Configuration, epoch: int) -> list[list[int]]:
    """This client's batches of an epoch: all clients draw from one order, as in data-parallel
    training, and what does not fill a batch of each is left out."""
    order = list(range(configuration["samples"]))
    random.Random(f"{configuration['seed']}/{epoch}").shuffle(order)
    size, clients = configuration["batch"], configuration["clients"]
    count = len(order) // (size * clients)
    mine = order[configuration["client"] :: clients]
    return [mine[number * size : (number + 1) * size] for number in range(count)]


class Batch(NamedTuple):
    """What one step takes."""

    samples: int
    bytes: int  # noqa: A003 - the quantity
    bins: dict[int, int]
    """Latencies of the reads of its samples, as `bin_of` has them, and how many of each."""
    content: Any = None
    """The samples one behind the other in a tensor, with PyTorch."""


class Worker(threading.Thread):
    """Reads every n-th batch ahead of the accelerator. Waiting for storage holds up no other."""

    def __init__(self, data: DataSet, mine: list[list[int]]) -> None:
        super().__init__(daemon=True)
        self._data = data
        self._mine = mine
        self.ready: queue.Queue[Batch | Exception] = queue.Queue(PREFETCHED_BATCHES)

    def run(self) -> None:
        buffer = bytearray(max(self._data.sizes))
        for batch in self._mine:
            bins: collections.Counter[int] = collections.Counter()
            read = 0
            try:
                for number in batch:
                    begin = time.monotonic_ns()
                    read += self._data.read(number, buffer)
                    bins[bin_of(time.monotonic_ns() - begin)] += 1
            except Exception as error:  # noqa: BLE001 - raised by who waits for the batch
                self.ready.put(error)
                return
            self.ready.put(Batch(len(batch), read, bins))


class ThreadLoader:
    """Threads of this process read ahead."""

    def __init__(self, configuration: Configuration, data: DataSet) -> None:
        self._data = data
        self._workers: int = configuration["workers"]
        self.accelerator: Accelerator = Sleep(configuration["compute_s"])

    def epoch(self, mine: list[list[int]]) -> Iterator[Batch]:
        count = self._workers
        workers = [Worker(self._data, mine[first::count]) for first in range(count)]
        for worker in workers:
            worker.start()
        for step in range(len(mine)):
            got = workers[step % count].ready.get()
            if isinstance(got, Exception):
                raise got
            yield got
        for worker in workers:
            worker.join()


class TorchLoader:
    """The `DataLoader` of PyTorch, whose workers are forked processes, as a training has it."""

    def __init__(self, configuration: Configuration, data: DataSet) -> None:
        try:
            import torch
            from torch.utils.data import DataLoader
        except ImportError as error:
            raise Broken(
                f"cannot import torch: {error}; install the Debian package python3-torch, or torch "
                f"from PyPI, for {sys.executable}"
            ) from error
        self._torch = torch
        self._data = data
        # Read by the loader when an epoch begins, so that workers live for all epochs.
        self._order: list[list[int]] = []
        has_gpu = torch.cuda.is_available()
        self.accelerator: Accelerator = (
            Gpu(torch, configuration["device"], configuration["compute_s"])
            if has_gpu
            else Sleep(configuration["compute_s"])
        )
        self._loader = DataLoader(
            self,
            batch_sampler=self._order,
            num_workers=configuration["workers"],
            collate_fn=self._collate,
            prefetch_factor=PREFETCHED_BATCHES,
            persistent_workers=True,
            pin_memory=has_gpu,
            # This program has no file that another start method could run again.
            multiprocessing_context="fork",
        )

    def __len__(self) -> int:
        return self._data.samples

    def __getitem__(self, number: int) -> tuple[Any, int]:
        """Reads a sample, in a worker."""
        buffer = bytearray(self._data.sizes[number])
        begin = time.monotonic_ns()
        self._data.read(number, buffer)
        latency_ns = time.monotonic_ns() - begin
        return self._torch.frombuffer(buffer, dtype=self._torch.uint8), latency_ns

    def _collate(self, samples: list[tuple[Any, int]]) -> Batch:
        """One tensor, because samples differ in size and each shared one takes a descriptor."""
        content = self._torch.cat([sample for sample, _ in samples])
        bins = collections.Counter(bin_of(latency_ns) for _, latency_ns in samples)
        return Batch(len(samples), content.numel(), dict(bins), content)

    def epoch(self, mine: list[list[int]]) -> Iterator[Batch]:
        self._order[:] = mine
        return iter(self._loader)


class Accelerator:
    """What takes a batch and computes for a set time in each step."""

    kind = ""

    def take(self, batch: Batch) -> None:
        """Brings the batch to where it is computed with."""

    def step(self) -> None:
        """Computes, and returns when that is done."""
        raise NotImplementedError

    def busy(self) -> float | None:
        """What part of the time the device was busy of late, as NVML says; None without it."""
        return None


class Sleep(Accelerator):
    """Computes nothing."""

    kind = "sleep"

    def __init__(self, compute_s: float) -> None:
        self._compute_s = compute_s

    def step(self) -> None:
        time.sleep(self._compute_s)


class Gpu(Accelerator):
    """Multiplies matrices on a device of CUDA until the time of a step has passed."""

    kind = "gpu"

    def __init__(self, torch: Any, number: int, compute_s: float) -> None:
        self._torch = torch
        self._compute_s = compute_s
        # Clients of one host share its devices.
        self._device = torch.device("cuda", number % torch.cuda.device_count())
        self._matrix = torch.rand(MATRIX_ROWS, MATRIX_ROWS, device=self._device)
        self._product = torch.empty_like(self._matrix)
        self._batch: Any = None

    def take(self, batch: Batch) -> None:
        self._batch = batch.content.to(self._device, non_blocking=True)
        self._torch.cuda.synchronize(self._device)

    def step(self) -> None:
        end = time.monotonic() + self._compute_s
        while time.monotonic() < end:
            self._torch.mm(self._matrix, self._matrix, out=self._product)
            self._torch.cuda.synchronize(self._device)

    def busy(self) -> float | None:
        try:
            return float(self._torch.cuda.utilization(self._device)) / 100
        except Exception:  # noqa: BLE001 - no pynvml, no driver, another vendor: there is no NVML
            return None


class Usage:
    """How busy the accelerator was over time: equal intervals from 0 s, `POINTS_MAX` at most."""

    def __init__(self) -> None:
        self._every_s = INTERVAL_S
        self._busy_s: list[float] = []

    def add(self, begin_s: float, end_s: float, part: float = 1.0) -> None:
        """It was busy for this part of that time."""
        while end_s > self._every_s * POINTS_MAX:
            self._every_s *= 2
            pairs = range(0, len(self._busy_s), 2)
            self._busy_s = [sum(self._busy_s[first : first + 2]) for first in pairs]
        while begin_s < end_s:
            index = int(begin_s / self._every_s)
            until = min(end_s, (index + 1) * self._every_s)
            if until <= begin_s:
                # The begin of the next interval, which the division rounds down.
                index, until = index + 1, min(end_s, (index + 2) * self._every_s)
            self._busy_s += [0.0] * (index + 1 - len(self._busy_s))
            self._busy_s[index] += (until - begin_s) * part
            begin_s = until

    def busy_s(self) -> float:
        return sum(self._busy_s)

    def points(self, length_s: float) -> list[list[float]]:
        """The end of each interval, in seconds, and how busy it was in that, as a part of 1."""
        found = []
        begin_s = 0.0
        for index in range(math.ceil(length_s / self._every_s)):
            end_s = min(length_s, (index + 1) * self._every_s)
            busy_s = self._busy_s[index] if index < len(self._busy_s) else 0.0
            if end_s > begin_s:
                found.append([end_s, min(1.0, busy_s / (end_s - begin_s))])
            begin_s = end_s
        return found


class Nvml(threading.Thread):
    """Asks NVML over and over, until it is stopped or there is no answer."""

    def __init__(self, accelerator: Accelerator, begin_s: float) -> None:
        super().__init__(daemon=True)
        self._accelerator = accelerator
        self._begin_s = begin_s
        self._stopped = threading.Event()
        # Orders the end before or behind a sample, which so never lasts longer than that.
        self._lock = threading.Lock()
        self._end_s = math.inf
        self.usage = Usage()
        self.is_whole = accelerator.busy() is not None
        """Whether it answered each time."""

    def run(self) -> None:
        before_s = 0.0
        while self.is_whole:
            is_last = self._stopped.wait(INTERVAL_S)
            part = self._accelerator.busy()
            if part is None:
                self.is_whole = False
                return
            with self._lock:
                now_s = min(time.monotonic() - self._begin_s, self._end_s)
            self.usage.add(before_s, now_s, part)
            before_s = now_s
            if is_last:
                return

    def stop(self) -> float:
        """Returns how many seconds it asked."""
        with self._lock:
            self._end_s = time.monotonic() - self._begin_s
        self._stopped.set()
        self.join()
        return self._end_s


LOADERS: dict[str, type[ThreadLoader] | type[TorchLoader]] = {
    "threads": ThreadLoader,
    "torch": TorchLoader,
}


def train(configuration: Configuration, data: DataSet) -> dict[str, Any]:
    """Epochs of steps, each of which waits for its batch and then computes."""
    loader = LOADERS[configuration["loader"]](configuration, data)
    accelerator, compute_s = loader.accelerator, configuration["compute_s"]
    bins: collections.Counter[int] = collections.Counter()
    samples = steps = done_bytes = 0
    epochs = []
    begin, begin_s = stamp(), time.monotonic()
    modelled, nvml = Usage(), Nvml(accelerator, begin_s)
    nvml.start()
    for epoch in range(configuration["epochs"]):
        mine = batches(configuration, epoch)
        started = asked = time.monotonic()
        stall_s = 0.0
        for batch in loader.epoch(mine):
            accelerator.take(batch)
            got = time.monotonic()
            stall_s += got - asked
            accelerator.step()
            # Not until now: a sleep is a little longer than it shall be.
            modelled.add(got - begin_s, got - begin_s + compute_s)
            samples += batch.samples
            done_bytes += batch.bytes
            bins.update(batch.bins)
            steps += 1
            asked = time.monotonic()
        epochs.append({"seconds": asked - started, "stall_s": stall_s})
    end, length_s = stamp(), nvml.stop()
    return {
        "begin": begin,
        "end": end,
        "seconds": length_s,
        "samples": samples,
        "steps": steps,
        "bytes": done_bytes,
        "epochs": epochs,
        "bins": bins,
        "accelerator": accelerator.kind,
        "busy_from": "nvml" if nvml.is_whole else "model",
        "busy_s": nvml.usage.busy_s() if nvml.is_whole else steps * compute_s,
        "busy": (nvml.usage if nvml.is_whole else modelled).points(length_s),
    }


def stamp() -> list[int]:
    return [
        time.clock_gettime_ns(time.CLOCK_REALTIME),
        time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW),
    ]


def main(verb: str, text: str) -> int:
    configuration = json.loads(text)
    data = DataSet(configuration)
    try:
        done = {"write": write, "train": train, "check": check}[verb](configuration, data)
    # The last is what PyTorch raises where a worker of its loader was killed.
    except (Broken, OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(done))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
