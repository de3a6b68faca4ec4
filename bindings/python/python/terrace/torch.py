# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Stores for PyTorch: samples, shards, a loader that brings what comes next to the fast tier, and
checkpoints.

    data = ObjectDataset("my-store", prefix="images/train/", transform=decode)
    sampler = RandomSampler(data, generator=torch.Generator().manual_seed(1))
    loader = Loader(data, sampler=sampler, batch_size=32, num_workers=4, prefetch_tier="fast")
"""

from __future__ import annotations

import errno
import importlib.util
import io
import os
import random
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from terrace._errors import Error
from terrace._shared import Opener, absolute, shared
from terrace._torch_prefetch import Prefetcher
from terrace._torch_stream import SaveStream

if TYPE_CHECKING:
    from terrace._store import Object, Store
    from terrace._torch_checkpoint import CheckpointReader, CheckpointWriter

__all__ = [
    "FileDataset",
    "Loader",
    "ObjectDataset",
    "ShardDataset",
    "load",
    "save",
    "save_async",
]

# PyTorch before 2.2, or without torch.distributed, has everything else.
if torch.distributed.is_available() and importlib.util.find_spec("torch.distributed.checkpoint"):
    __all__ += ["CheckpointReader", "CheckpointWriter"]

_BATCH_BYTES = 8 << 20
# Read of each sample before its length is known.
_FIRST_READ_BYTES = 256 << 10
# Samples that the prefetcher keeps ahead of the workers by default.
_WINDOW_SAMPLES = 512


class ObjectDataset(Dataset[Any]):  # type: ignore[misc]
    """Samples that are objects: those of `names`, or all that begin with `prefix`, in the order of
    their names. `transform` makes a sample of its bytes; without one samples are bytes.

    A worker opens the store when it reads its first sample. The samples of a batch are read with
    few requests, but one by one where a subclass has a `__getitem__` of its own.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        names: Sequence[str] | None = None,
        *,
        prefix: str | None = None,
        transform: Callable[[bytes], Any] | None = None,
    ) -> None:
        if (names is None) == (prefix is None):
            raise ValueError("either names or a prefix is needed")
        self._opener = Opener(store)
        self.names = list(names) if names is not None else sorted(self._store().list(prefix or ""))
        self.transform = transform

    @property
    def address(self) -> str:
        return self._opener.address

    def _store(self) -> Store:
        return self._opener.store()

    def _object_of(self, name: str) -> str | None:
        return name

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Any:
        return self._sample(self._store().get(self.names[index]))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Reads the samples of a batch with few requests."""
        if type(self).__getitem__ is not ObjectDataset.__getitem__:
            return [self[index] for index in indices]
        store = self._store()
        found: list[Any] = []
        per_request = max(_BATCH_BYTES // _FIRST_READ_BYTES, 1)
        for start in range(0, len(indices), per_request):
            names = [self.names[index] for index in indices[start : start + per_request]]
            batch = store.batch()
            for name in names:
                batch.read(name, 0, _FIRST_READ_BYTES)
            for name, outcome in zip(names, batch.run(), strict=True):
                if isinstance(outcome, Error):
                    raise outcome
                assert isinstance(outcome, bytes)
                whole = outcome if len(outcome) < _FIRST_READ_BYTES else store.get(name)
                found.append(self._sample(whole))
        return found

    def _sample(self, data: bytes) -> Any:
        return data if self.transform is None else self.transform(data)


class FileDataset(Dataset[Any]):  # type: ignore[misc]
    """Samples that are files: those of `names` below a directory, or all that are below it, in the
    order of their names. `transform` makes a sample of its bytes; without one samples are bytes.

    In a mount of a store, a `Loader` brings files to a fast tier as it does objects. It opens the
    store for that as `user.terrace.store` names it.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        names: Sequence[str] | None = None,
        *,
        transform: Callable[[bytes], Any] | None = None,
    ) -> None:
        self.directory = os.path.abspath(directory)
        self.names = list(names) if names is not None else sorted(_files_below(self.directory))
        self.transform = transform
        self._opener: Opener | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Any:
        with open(os.path.join(self.directory, self.names[index]), "rb", buffering=0) as file:
            data = file.readall()
        return data if self.transform is None else self.transform(data)

    def _store(self) -> Store:
        if self._opener is None:
            try:
                address = os.getxattr(self.directory, "user.terrace.store")
            except OSError as error:
                reason = f"{self.directory} is in no mount of a store"
                raise ValueError(f"a prefetch tier needs files of a mount: {reason}") from error
            self._opener = Opener(os.fsdecode(address))
        return self._opener.store()

    def _object_of(self, name: str) -> str | None:
        path = os.path.join(self.directory, name)
        try:
            # Small files are stored with their names.
            if os.getxattr(path, "user.terrace.tier") == b"metadata":
                return None
            return os.fsdecode(os.getxattr(path, "user.terrace.key"))
        except OSError as error:
            if error.errno == errno.ENODATA:
                return None
            raise


def _files_below(directory: str) -> Iterator[str]:
    def fail(error: OSError) -> None:
        raise error

    for place, _, files in os.walk(directory, onerror=fail):
        for file in files:
            yield os.path.relpath(os.path.join(place, file), directory)


class ShardDataset(IterableDataset[Any]):  # type: ignore[misc]
    """Samples in objects that are tar archives, as WebDataset has them: members whose names are the
    same up to the first dot after the last slash, one behind the other, are one sample, a dict from
    the rest of the name to bytes, with `__key__`.

    Shards are divided among ranks and workers. `shuffle_seed` shuffles them anew in each epoch, the
    same way on all; `set_epoch` says which one begins, also to workers that are running. Ranks are
    those of torch.distributed where that is in use.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        shards: Sequence[str] | None = None,
        *,
        prefix: str | None = None,
        transform: Callable[[dict[str, Any]], Any] | None = None,
        shuffle_seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        if (shards is None) == (prefix is None):
            raise ValueError("either shards or a prefix is needed")
        self._opener = Opener(store)
        if shards is None:
            shards = sorted(self._opener.store().list(prefix or ""))
        self.shards = list(shards)
        self.transform = transform
        self.shuffle_seed = shuffle_seed
        is_distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        self.rank = rank if rank is not None else (
            torch.distributed.get_rank() if is_distributed else 0
        )  # fmt: skip
        self.world_size = world_size if world_size is not None else (
            torch.distributed.get_world_size() if is_distributed else 1
        )  # fmt: skip
        # In shared memory: persistent workers have copies of this object.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    @property
    def address(self) -> str:
        return self._opener.address

    @property
    def epoch(self) -> int:
        """The number of the epoch, which the order of the shards depends on."""
        return int(self._epoch.item())

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch[0] = epoch

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the shards, before the loader is iterated over."""
        self.epoch = epoch

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        # A copy that was not made for a worker has an epoch of its own, for workers of its own.
        self._epoch.share_memory_()

    def own_shards(self) -> list[str]:
        """Those of this rank and this worker, in order."""
        shards = list(self.shards)
        if self.shuffle_seed is not None:
            random.Random(f"{self.shuffle_seed} {self.epoch}").shuffle(shards)
        worker = get_worker_info()
        workers, number = (1, 0) if worker is None else (worker.num_workers, worker.id)
        return shards[self.rank :: self.world_size][number::workers]

    def __iter__(self) -> Iterator[Any]:
        store = self._opener.store()
        for shard in self.own_shards():
            with store.open(shard) as file, io.BufferedReader(file, _BATCH_BYTES) as buffered:
                for sample in _samples(buffered):
                    yield sample if self.transform is None else self.transform(sample)


def _samples(file: Any) -> Iterator[dict[str, Any]]:
    """The samples of a shard."""
    sample: dict[str, Any] = {}
    with tarfile.open(fileobj=file, mode="r|") as archive:
        for member in archive:
            if not member.isfile():
                continue
            directory, slash, name = member.name.rpartition("/")
            stem, _, kind = name.partition(".")
            key = directory + slash + stem
            if sample.get("__key__", key) != key:
                yield sample
                sample = {}
            content = archive.extractfile(member)
            assert content is not None
            sample["__key__"] = key
            sample[kind] = content.read()
    if sample:
        yield sample


class Loader:
    """A `DataLoader` that can be resumed in the middle of an epoch, and that brings the objects of
    the samples that come next to a fast tier.

    It is made of a data set of objects, files or shards and the options of `DataLoader`. One
    iteration is an epoch, also where it is left early, or an exception ends it: the next one begins
    the next epoch, and goes on in this one after `loader.load_state_dict(loader.state_dict())`. A
    sampler that has `set_epoch` gets the number of each, and the data set, too.

    `state_dict` says how far the epoch is, also after it was left. The first iteration behind
    `load_state_dict` goes on there: the batches that follow are those that would have followed,
    provided that the sampler's order depends on the number of the epoch, or on its attribute
    `generator`, and on nothing else. The state holds that of the generator when the epoch began, or
    between epochs, when the next one will. Only the sampler advances the generator, also where the
    `DataLoader` has the same one. What was loaded is skipped without reading it, except for shards.

    With `prefetch_tier`, objects of an `ObjectDataset`, or those of the files of a `FileDataset` in
    a mount, are promoted to this tier `window_samples` ahead of what is asked for, in the order of
    the sampler, and brought back to where they were once their batch was used, unless another
    program did that already. The tier needs room for these, and for the batches that the workers
    have asked for: `num_workers` times `prefetch_factor`. Failures of that never fail the loader;
    `prefetch_failures` counts them.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        prefetch_tier: str | None = None,
        window_samples: int = _WINDOW_SAMPLES,
        keep: bool = False,
        **options: Any,
    ) -> None:
        self.dataset = dataset
        self.epoch = 0
        self._batches = 0
        # Whether an epoch has begun, and not ended.
        self._is_begun = False
        # Whether the next iteration goes on in the epoch.
        self._is_resumed = False
        # The number of the last iteration: one that was left changes nothing any more.
        self._iteration = 0
        self._prefetch_tier = prefetch_tier
        self._window_samples = window_samples
        self._keep = keep
        self.prefetch_failures = 0
        self._sampler: Any = None
        self._generator_state: Any = None
        if prefetch_tier is not None and not isinstance(dataset, ObjectDataset | FileDataset):
            raise ValueError("a prefetch tier needs an ObjectDataset or a FileDataset")
        if prefetch_tier is not None:
            # Where there is none, that is not found out in the first epoch.
            dataset._store()
        if isinstance(dataset, IterableDataset):
            self._loader = DataLoader(dataset, **options)
            return
        batch_sampler = options.pop("batch_sampler", None)
        if batch_sampler is None:
            whole = DataLoader(dataset, **options)
            batch_sampler = whole.batch_sampler
            if batch_sampler is None:
                raise ValueError("batch_size is a number, also where batches have one sample")
            for taken in ("batch_size", "shuffle", "sampler", "drop_last"):
                options.pop(taken, None)
        self._sampler = batch_sampler
        self._order = _Order()
        self._loader = DataLoader(dataset, batch_sampler=self._order, **options)

    def __len__(self) -> int:
        return len(self._loader if self._sampler is None else self._sampler)

    def __iter__(self) -> Iterator[Any]:
        generator = self._generator()
        if self._is_resumed:
            if generator is not None and self._generator_state is not None:
                generator.set_state(self._generator_state)
        else:
            if self._is_begun:
                self.epoch += 1
            self._batches = 0
        self._is_begun, self._is_resumed = True, False
        self._iteration += 1
        iteration, skipped = self._iteration, self._batches
        self._generator_state = None if generator is None else generator.get_state()
        for one in (*self._samplers(), self.dataset):
            if hasattr(one, "set_epoch"):
                one.set_epoch(self.epoch)
        prefetcher = None
        if self._sampler is not None:
            self._order.batches = list(self._sampler)[skipped:]
            if self._prefetch_tier is not None:
                names = self.dataset.names
                prefetcher = Prefetcher(
                    self.dataset._store(),
                    [[names[index] for index in batch] for batch in self._order.batches],
                    self.dataset._object_of,
                    self._prefetch_tier,
                    self._window_samples,
                    self._loader.num_workers * (self._loader.prefetch_factor or 0),
                    self._keep,
                )
        try:
            after = None if generator is None else generator.get_state()
            batches = iter(self._loader)
            if generator is not None:
                # The DataLoader draws a seed from its generator where it starts workers, in the
                # first epoch of a program alone where these are persistent.
                generator.set_state(after)
            if self._sampler is None:
                for _ in range(skipped):
                    next(batches, None)
            for batch in batches:
                # Counted before it is used: a checkpoint during the step holds this batch.
                if iteration == self._iteration:
                    self._batches += 1
                yield batch
                if prefetcher is not None:
                    prefetcher.used()
        finally:
            if prefetcher is not None:
                self.prefetch_failures += prefetcher.close()
        if iteration == self._iteration:
            self.epoch += 1
            self._batches = 0
            self._is_begun = False

    def state_dict(self) -> dict[str, Any]:
        """How far the epoch is: the batches that were yielded count."""
        state = self._generator_state
        if not self._is_begun and not self._is_resumed:
            generator = self._generator()
            state = None if generator is None else generator.get_state()
        return {"epoch": self.epoch, "batches": self._batches, "generator": state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where the state was taken, with the next iteration."""
        self.epoch = state["epoch"]
        self._batches = state["batches"]
        self._generator_state = state["generator"]
        self._is_begun, self._is_resumed = False, True
        self._iteration += 1

    def _samplers(self) -> list[Any]:
        """The sampler of samples and that of batches, as far as there are."""
        samplers = (getattr(self._sampler, "sampler", None), self._sampler)
        return [one for one in samplers if one is not None]

    def _generator(self) -> Any:
        """What the order of the samples is drawn from, or nothing."""
        generators = (getattr(one, "generator", None) for one in self._samplers())
        return next((one for one in generators if one is not None), None)


class _Order:
    """A batch sampler with the order that the loader gives it."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def save(store: str | os.PathLike[str], name: str, value: Any, *, durable: bool = True) -> None:
    """`torch.save` to an object, atomically: after a failure it has its old value. With `durable`
    it survives a loss of power once this returns."""
    with _replaced(store, name, durable) as file:
        buffered = io.BufferedWriter(file, _BATCH_BYTES)
        _serialize(value, buffered)
        buffered.flush()
        # The file replaces the object when it is closed, here.
        buffered.detach()


def _replaced(store: str | os.PathLike[str], name: str, durable: bool) -> Object:
    return shared(store).open(name, "wb", semantics="persistency=storage" if durable else None)


def _serialize(value: Any, file: Any) -> None:
    stream = SaveStream(file)
    torch.save(value, stream)
    stream.check()


def load(store: str | os.PathLike[str], name: str, **options: Any) -> Any:
    """`torch.load` from an object; `options` are those of `torch.load`."""
    with shared(store).open(name) as file, io.BufferedReader(file, _BATCH_BYTES) as buffered:
        return torch.load(buffered, **options)


def save_async(
    store: str | os.PathLike[str], name: str, value: Any, *, durable: bool = True
) -> Future[None]:
    """`save` whose writing to the store is left to a thread. `torch.save` runs before this returns,
    into the memory of this process, which holds all bytes of the object until they are written.
    Changes of the value after that are not saved; an error of `torch.save` is raised here.

    The result of the future is there once the object has its new value, and is durable if that was
    asked for.
    """
    address = absolute(store)
    serialized = io.BytesIO()
    _serialize(value, serialized)
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            with _replaced(address, name, durable) as file, serialized.getbuffer() as data:
                for start in range(0, len(data), _BATCH_BYTES):
                    file.write(data[start : start + _BATCH_BYTES])
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    # Not a daemon: the interpreter waits for the end of a save.
    threading.Thread(target=work, name="terrace-save").start()
    return future


def __getattr__(name: str) -> Any:
    if name in ("CheckpointReader", "CheckpointWriter"):
        from terrace import _torch_checkpoint

        return getattr(_torch_checkpoint, name)
    raise AttributeError(f"module 'terrace.torch' has no attribute {name!r}")
