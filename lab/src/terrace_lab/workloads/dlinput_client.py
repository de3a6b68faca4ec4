# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One client of `dlinput`: writes, reads or checks samples. Runs on its host alone, Python 3.9.

    python3 - VERB <<<CONFIGURATION... prints one JSON object

Samples are found by arithmetic alone: their sizes follow from the seed, so that no index is read.
Each begins with its number, the length and the CRC-32 of what follows.
"""

from __future__ import annotations

import collections
import json
import os
import queue
import random
import struct
import sys
import threading
import time
import zlib
from typing import Any

Configuration = dict[str, Any]

_HEAD = struct.Struct("<QQI4x")
_BLOCK_BYTES = 1 << 20
# So that neighbours do not begin with the same bytes.
_STRIDE = 7919
PREFETCHED_BATCHES = 2
"""Batches that each worker has ready, as data loaders do."""


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


class Worker(threading.Thread):
    """Reads every n-th batch ahead of the accelerator. Waiting for storage holds up no other."""

    def __init__(self, data: DataSet, mine: list[list[int]]) -> None:
        super().__init__(daemon=True)
        self._data = data
        self._mine = mine
        self.ready: queue.Queue[int | Exception] = queue.Queue(PREFETCHED_BATCHES)
        self.bins: collections.Counter[int] = collections.Counter()
        self.bytes = 0

    def run(self) -> None:
        buffer = bytearray(max(self._data.sizes))
        for batch in self._mine:
            try:
                for number in batch:
                    begin = time.monotonic_ns()
                    self.bytes += self._data.read(number, buffer)
                    self.bins[bin_of(time.monotonic_ns() - begin)] += 1
            except Exception as error:  # noqa: BLE001 - raised by who waits for the batch
                self.ready.put(error)
                return
            self.ready.put(len(batch))


def train(configuration: Configuration, data: DataSet) -> dict[str, Any]:
    """Epochs of steps. The accelerator is a sleep: it computes nothing."""
    compute_s, count = configuration["compute_s"], configuration["workers"]
    bins: collections.Counter[int] = collections.Counter()
    samples = steps = done_bytes = 0
    epochs = []
    begin = stamp()
    for epoch in range(configuration["epochs"]):
        mine = batches(configuration, epoch)
        workers = [Worker(data, mine[first::count]) for first in range(count)]
        started = time.monotonic()
        stall_s = 0.0
        for worker in workers:
            worker.start()
        for step in range(len(mine)):
            asked = time.monotonic()
            got = workers[step % count].ready.get()
            stall_s += time.monotonic() - asked
            if isinstance(got, Exception):
                raise got
            time.sleep(compute_s)
            samples += got
            steps += 1
        epochs.append({"seconds": time.monotonic() - started, "stall_s": stall_s})
        for worker in workers:
            worker.join()
            bins.update(worker.bins)
            done_bytes += worker.bytes
    return {
        "begin": begin,
        "end": stamp(),
        "samples": samples,
        "steps": steps,
        "bytes": done_bytes,
        "epochs": epochs,
        "bins": bins,
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
    except (Broken, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(done))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
