# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Storage of `torch.distributed.checkpoint` of PyTorch 2.2 and later: checkpoints that all ranks of
a program write together."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pickle
import secrets
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint import StorageReader, StorageWriter
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from terrace._errors import NotFound
from terrace._shared import Opener
from terrace._torch_stream import SaveStream

if TYPE_CHECKING:
    from terrace._store import Store

_METADATA = ".metadata"
_BUFFER_BYTES = 8 << 20
# Items that are this close in an object are read together, up to the size of a buffer.
_GAP_BYTES_MAX = 64 << 10


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where an item of a checkpoint is."""

    object_name: str
    offset_bytes: int
    size_bytes: int


class _Checkpoint:
    """A name in a store under which a checkpoint is."""

    def __init__(self, store: str | os.PathLike[str], name: str | None) -> None:
        super().__init__()
        self._opener = Opener(store)
        self.name = name

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Chooses another name: the `checkpoint_id` of `save` and `load`."""
        if checkpoint_id is not None:
            self.name = os.fspath(checkpoint_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Names of objects are texts, with or without a namespace."""
        return bool(os.fspath(checkpoint_id).strip("/"))

    @property
    def prefix(self) -> str:
        if not self.name:
            raise ValueError("the checkpoint has no name: pass one, or a checkpoint_id")
        return self.name.rstrip("/") + "/"

    def _store(self) -> Store:
        return self._opener.store()

    def _metadata(self) -> Any:
        return pickle.loads(self._store().get(self.prefix + _METADATA))


class CheckpointWriter(_Checkpoint, StorageWriter):  # type: ignore[misc]
    """Writes a checkpoint of `torch.distributed.checkpoint` below a name: an object for each rank,
    and one with the metadata, which is replaced last and atomically.

    Until then a reader finds the checkpoint that had the name before. With `durable` everything
    survives a loss of power once `save` returns, or the future of `async_save` has a result. That
    copies tensors of other devices first; those of the CPU must not change until then. One program
    saves to a name at a time. The objects of the checkpoint before are removed behind the new one:
    a reader that has not opened them yet gets `NotFound`.
    """

    def __init__(
        self, store: str | os.PathLike[str], name: str | None = None, *, durable: bool = True
    ) -> None:
        super().__init__(store, name)
        self._level = "persistency=storage" if durable else None

    def set_up_storage_writer(self, *_: Any, **__: Any) -> None:
        pass

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        # New names for every save, so that the checkpoint before stays whole.
        save = secrets.token_hex(8)
        return [
            dataclasses.replace(plan, storage_data=f"{self.prefix}{save}-{rank}.distcp")
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: Any, planner: Any) -> Future[list[WriteResult]]:
        name = plan.storage_data
        if not isinstance(name, str):
            raise ValueError("the coordinator of the save has given this rank no place")
        results = []
        if plan.items:
            # Published without an exception alone; `wb` replaces when it is closed.
            with self._store().open(name, "wb", semantics=self._level) as file:
                buffered = io.BufferedWriter(file, _BUFFER_BYTES)
                stream = SaveStream(buffered)
                for item in plan.items:
                    begin = stream.tell()
                    _write(stream, item, planner.resolve_data(item))
                    stream.check()
                    size = stream.tell() - begin
                    place = _Place(name, begin, size)
                    results.append(WriteResult(item.index, size, place))
                buffered.flush()
                buffered.detach()
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Any, results: list[list[WriteResult]]) -> None:
        metadata.storage_data = {one.index: one.storage_data for rank in results for one in rank}
        store, name = self._store(), self.prefix + _METADATA
        before: set[str] = set()
        with contextlib.suppress(NotFound):
            before = _objects(self._metadata())
        store.put(name, pickle.dumps(metadata), semantics=self._level)
        for replaced in before - _objects(metadata):
            # `remove_unfinished` of another program may have removed it.
            with contextlib.suppress(NotFound):
                store.delete(replaced)

    def remove_unfinished(self) -> list[str]:
        """Removes what saves that did not end have left below the name, and returns its names. No
        save to the name may be running."""
        # Outside the block below: a store that is not found is no checkpoint that is missing.
        store = self._store()
        kept: set[str] = set()
        with contextlib.suppress(NotFound):
            kept = _objects(self._metadata())
        names = [
            name
            for name in store.list(self.prefix)
            if name.endswith(".distcp") and name not in kept
        ]
        for name in names:
            with contextlib.suppress(NotFound):
                store.delete(name)
        return names


class CheckpointReader(_Checkpoint, StorageReader):  # type: ignore[misc]
    """Reads a checkpoint that `CheckpointWriter` wrote, also with another number of ranks.

    Metadata is unpickled, as PyTorch does it with that of its own checkpoints: read only those that
    you trust.
    """

    def __init__(self, store: str | os.PathLike[str], name: str | None = None) -> None:
        super().__init__(store, name)
        self._places: dict[Any, _Place] = {}

    def read_metadata(self, *_: Any, **__: Any) -> Any:
        return self._metadata()

    def set_up_storage_reader(
        self, metadata: Any, is_coordinator: bool, *_: Any, **__: Any
    ) -> None:
        self._places = metadata.storage_data

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        return plans

    def read_data(self, plan: Any, planner: Any) -> Future[None]:
        wanted: dict[str, list[tuple[_Place, Any]]] = defaultdict(list)
        for item in plan.items:
            place = self._places[item.storage_index]
            wanted[place.object_name].append((place, item))
        for name, found in wanted.items():
            with self._store().open(name) as file:
                for begin, size, run in _runs(found):
                    data = memoryview(file.read_at(begin, size))
                    for place, item in run:
                        start = place.offset_bytes - begin
                        _load(item, io.BytesIO(data[start : start + place.size_bytes]), planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done


def _objects(metadata: Any) -> set[str]:
    return {place.object_name for place in metadata.storage_data.values()}


def _write(stream: SaveStream, item: Any, data: Any) -> None:
    if item.type == WriteItemType.BYTE_IO:
        stream.write(data.getbuffer())
        return
    tensor = data.detach().to("cpu")
    if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
        # A view: what is around it is not saved.
        tensor = tensor.clone()
    torch.save(tensor, stream)


def _load(item: Any, data: io.BytesIO, planner: Any) -> None:
    if item.type == LoadItemType.BYTE_IO:
        planner.load_bytes(item, data)
        return
    tensor = torch.load(data, map_location="cpu", weights_only=True)
    for dimension, (start, length) in enumerate(
        zip(item.storage_offsets, item.lengths, strict=True)
    ):
        tensor = tensor.narrow(dimension, start, length)
    target = planner.resolve_tensor(item).detach()
    if target.size() != tensor.size():
        raise ValueError(
            f"{item.dest_index.fqn} has the size {tuple(target.size())}, and the checkpoint "
            f"{tuple(tensor.size())}"
        )
    target.copy_(tensor)
    planner.commit_tensor(item, target)


def _runs(
    found: list[tuple[_Place, Any]],
) -> Iterator[tuple[int, int, list[tuple[_Place, Any]]]]:
    """What is read at once: the beginning, the size, and the items in it."""
    run: list[tuple[_Place, Any]] = []
    begin = end = 0
    for place, item in sorted(found, key=lambda one: one[0].offset_bytes):
        place_end = place.offset_bytes + place.size_bytes
        is_near = place.offset_bytes - end <= _GAP_BYTES_MAX and place_end - begin <= _BUFFER_BYTES
        if run and not is_near:
            yield begin, end - begin, run
            run = []
        if not run:
            begin = end = place.offset_bytes
        run.append((place, item))
        end = max(end, place_end)
    if run:
        yield begin, end - begin, run
