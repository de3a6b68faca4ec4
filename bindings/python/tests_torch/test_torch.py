# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`terrace.torch` with PyTorch: `make test-torch` runs it."""

from __future__ import annotations

import collections
import io
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, WeightedRandomSampler

import terrace
from terrace import torch as terrace_torch
from terrace._shared import shared
from terrace.torch import Loader, ObjectDataset, ShardDataset

SAMPLES = 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[terrace.Store]:
    terrace.Store.create(tmp_path / "store")
    store = shared(tmp_path / "store")
    for number in range(SAMPLES):
        # Of more than one read, now and then.
        size = 300_000 if number % 20 == 7 else 1000
        store.put(f"images/{number:03}", number.to_bytes(4, "little") * (size // 4))
    yield store
    store.close()


def decode(data: bytes) -> int:
    number = int.from_bytes(data[:4], "little")
    assert data == number.to_bytes(4, "little") * (300_000 // 4 if number % 20 == 7 else 250)
    return number


def dataset(store: terrace.Store) -> ObjectDataset:
    return ObjectDataset(store.address, prefix="images/", transform=decode)


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_samples_are_loaded_by_workers(store: terrace.Store, workers: int, method: str) -> None:
    data = dataset(store)
    assert len(data) == SAMPLES
    context = method if workers else None
    loader = DataLoader(data, batch_size=7, num_workers=workers, multiprocessing_context=context)
    for _ in range(2):
        batches = list(loader)
        assert torch.cat(batches).tolist() == list(range(SAMPLES))
    assert data.__getitems__([5, 3, 7, 27]) == [5, 3, 7, 27]
    assert data[7] == 7


def test_a_missing_sample_is_an_exception_of_its_kind(store: terrace.Store) -> None:
    data = ObjectDataset(store.address, ["images/001", "images/none"])
    with pytest.raises(FileNotFoundError):
        data.__getitems__([0, 1])
    with pytest.raises(FileNotFoundError):
        list(DataLoader(data, num_workers=2))
    with pytest.raises(ValueError, match="prefix"):
        ObjectDataset(store.address)


def samplers(data: ObjectDataset) -> dict[str, Any]:
    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(3)

    return {
        "random": lambda: RandomSampler(data, generator=generator()),
        "distributed": lambda: DistributedSampler(data, num_replicas=2, rank=1, seed=5),
        "weighted": lambda: WeightedRandomSampler(
            torch.arange(1.0, SAMPLES + 1), 50, generator=generator()
        ),
    }


def numbers(loader: Loader) -> list[list[int]]:
    """The batches of an epoch."""
    return [batch.tolist() for batch in loader]


def state_at(loader: Loader, batches: int) -> Any:
    """The state of an epoch that is left after so many batches, as it is stored."""
    for count, _ in enumerate(loader, 1):
        if count == batches:
            break
    return stored(loader.state_dict())


def stored(state: Any) -> Any:
    saved = io.BytesIO()
    torch.save(state, saved)
    saved.seek(0)
    return torch.load(saved)


@pytest.mark.parametrize("kind", ["random", "weighted", "distributed", "shuffle"])
def test_a_state_between_epochs_begins_the_next_one(store: terrace.Store, kind: str) -> None:
    data = dataset(store)

    def loader(seed: int = 3) -> Loader:
        if kind == "shuffle":
            generator = torch.Generator().manual_seed(seed)
            return Loader(data, shuffle=True, generator=generator, batch_size=4)
        return Loader(data, sampler=samplers(data)[kind](), batch_size=4)

    whole = loader()
    wanted = [numbers(whole) for _ in range(3)]
    assert wanted[0] != wanted[1] != wanted[2]
    running = loader()
    before = stored(running.state_dict())
    assert numbers(running) == wanted[0]
    state = stored(running.state_dict())
    assert numbers(running) == wanted[1]
    for resumed in (loader(), running):
        resumed.load_state_dict(state)
        assert stored(resumed.state_dict())["epoch"] == 1
        assert numbers(resumed) == wanted[1]
        assert numbers(resumed) == wanted[2]
    other = loader(seed=4)
    other.load_state_dict(before)
    assert numbers(other) == wanted[0]


@pytest.mark.parametrize("kind", ["random", "distributed"])
def test_a_loader_that_is_left_goes_on_with_the_next_epoch(store: terrace.Store, kind: str) -> None:
    data = dataset(store)

    def loader() -> Loader:
        return Loader(data, sampler=samplers(data)[kind](), batch_size=4)

    whole = loader()
    wanted = [numbers(whole) for _ in range(3)]
    left = loader()
    state = state_at(left, 5)
    assert (state["epoch"], state["batches"]) == (0, 5)
    assert numbers(left) == wanted[1]
    again = iter(left)
    assert next(again).tolist() == wanted[2][0]
    # Only what was asked for is resumed; an iteration that was left changes nothing any more.
    left.load_state_dict(state)
    assert numbers(left) == wanted[0][5:]
    assert [batch.tolist() for batch in again] == wanted[2][1:]
    assert numbers(left) == wanted[1]


@pytest.mark.parametrize("is_persistent", [False, True])
def test_workers_draw_nothing_from_the_generator_of_the_order(
    store: terrace.Store, is_persistent: bool
) -> None:
    data = dataset(store)

    def loader() -> Loader:
        return Loader(
            data, shuffle=True, generator=torch.Generator().manual_seed(3), batch_size=4,
            num_workers=2, persistent_workers=is_persistent,
        )  # fmt: skip

    whole = loader()
    wanted = [numbers(whole) for _ in range(4)]
    interrupted = loader()
    assert numbers(interrupted) == wanted[0]
    resumed = loader()
    resumed.load_state_dict(state_at(interrupted, 6))
    assert [numbers(resumed) for _ in range(3)] == [wanted[1][6:], *wanted[2:]]


class _Pairs(ObjectDataset):
    def __getitem__(self, index: int) -> Any:
        return index, super().__getitem__(index)


def test_a_subclass_chooses_its_samples(store: terrace.Store) -> None:
    data = _Pairs(store.address, prefix="images/", transform=decode)
    assert data.__getitems__([4, 2]) == [(4, 4), (2, 2)]
    for indices, found in DataLoader(data, batch_size=7):
        assert indices.tolist() == found.tolist()


def test_data_sets_keep_the_store_that_they_were_made_with(
    store: terrace.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("shards/0.tar", shard(range(3)))
    monkeypatch.chdir(tmp_path)
    data = ObjectDataset("store", prefix="images/", transform=decode)
    shards = ShardDataset("store", ["shards/0.tar"], transform=number_of)
    monkeypatch.chdir("/")
    assert (data.address, shards.address) == (store.address, store.address)
    for context in ("fork", "spawn"):
        workers: Any = {"num_workers": 1, "multiprocessing_context": context}
        assert next(iter(DataLoader(data, batch_size=3, **workers))).tolist() == [0, 1, 2]
        assert next(iter(DataLoader(shards, batch_size=3, **workers))).tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["random", "distributed", "weighted"])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_is_resumed_in_the_middle(store: terrace.Store, kind: str, workers: int) -> None:
    data = dataset(store)
    sampler = samplers(data)[kind]

    def loader() -> Loader:
        return Loader(data, sampler=sampler(), batch_size=4, num_workers=workers)

    whole = loader()
    wanted = [[batch.tolist() for batch in whole] for _ in range(3)]
    assert wanted[0] != wanted[1]
    interrupted = loader()
    list(interrupted)
    found, state = [], {}
    for batch in interrupted:
        found.append(batch.tolist())
        state = interrupted.state_dict()
        if len(found) == 5:
            break
    saved = io.BytesIO()
    torch.save(state, saved)
    saved.seek(0)
    resumed = loader()
    resumed.load_state_dict(torch.load(saved))
    found += [batch.tolist() for batch in resumed]
    assert found == wanted[1]
    assert [batch.tolist() for batch in resumed] == wanted[2]
    assert len(resumed) == len(wanted[0])


def shard(numbers: range) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for number in numbers:
            for kind, content in (("txt", b"%d" % number), ("meta.json", b"{}")):
                member = tarfile.TarInfo(f"part/{number:04}.{kind}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def number_of(sample: dict[str, Any]) -> int:
    assert sample["meta.json"] == b"{}"
    assert sample["__key__"] == f"part/{int(sample['txt']):04}"
    return int(sample["txt"])


@pytest.mark.parametrize("workers", [0, 2])
def test_shards_are_divided_and_resumed(store: terrace.Store, workers: int) -> None:
    for number in range(8):
        store.put(f"shards/{number}.tar", shard(range(number * 10, number * 10 + 10)))

    def data(rank: int) -> ShardDataset:
        return ShardDataset(
            store.address, prefix="shards/", transform=number_of, shuffle_seed=1,
            rank=rank, world_size=2,
        )  # fmt: skip

    def loader(rank: int) -> Loader:
        return Loader(data(rank), batch_size=3, num_workers=workers)

    loaders = [loader(0), loader(1)]
    epochs = [[[batch.tolist() for batch in one] for one in loaders] for _ in range(2)]
    for epoch in epochs:
        assert sorted(sum(epoch[0] + epoch[1], [])) == list(range(80))
    assert epochs[0] != epochs[1]
    interrupted = loader(0)
    found = []
    for batch in interrupted:
        found.append(batch.tolist())
        if len(found) == 4:
            break
    resumed = loader(0)
    resumed.load_state_dict(interrupted.state_dict())
    found += [batch.tolist() for batch in resumed]
    assert found == epochs[0][0]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_persistent_workers_shuffle_shards_in_each_epoch(store: terrace.Store, method: str) -> None:
    for number in range(8):
        store.put(f"shards/{number}.tar", shard(range(number * 10, number * 10 + 10)))

    def loader(**options: Any) -> Loader:
        data = ShardDataset(store.address, prefix="shards/", transform=number_of, shuffle_seed=1)
        return Loader(data, batch_size=5, num_workers=2, **options)

    persistent: Any = {"persistent_workers": True, "multiprocessing_context": method}
    restarted, running = loader(), loader(**persistent)
    wanted = [numbers(restarted) for _ in range(3)]
    assert [numbers(running) for _ in range(3)] == wanted
    assert wanted[0] != wanted[1]
    left = loader(**persistent)
    assert numbers(left) == wanted[0]
    resumed = loader(**persistent)
    resumed.load_state_dict(state_at(left, 3))
    assert [numbers(resumed) for _ in range(2)] == [wanted[1][3:], wanted[2]]
    assert numbers(left) == wanted[2]
    # A copy that is no worker's has its own epoch.
    data = left.dataset
    copied = pickle.loads(pickle.dumps(data))
    data.set_epoch(7)
    assert (copied.epoch, data.epoch) == (2, 7)
    assert copied.own_shards() != data.own_shards()


@pytest.mark.parametrize("workers", [0, 2])
def test_what_comes_next_is_brought_to_the_fast_tier(store: terrace.Store, workers: int) -> None:
    admin = store.admin()
    data = dataset(store)
    for name in data.names:
        admin.migrate(name, "slow")
    assert admin.wait_idle(60)

    def places() -> list[str]:
        return [admin.explain(name).segments[0].tier for name in data.names]

    assert set(places()) == {"slow"}
    # Some samples twice: they stay until the last use.
    sampler = [*range(SAMPLES), *range(10)]
    loader = Loader(
        data, sampler=sampler, batch_size=5, num_workers=workers, prefetch_tier="fast",
        window_samples=20,
    )  # fmt: skip
    found, most = [], 0
    for batch in loader:
        found += batch.tolist()
        assert admin.wait_idle(60)
        most = max(most, places().count("fast"))
    assert found == list(sampler)
    assert loader.prefetch_failures == 0
    assert admin.wait_idle(60)
    assert set(places()) == {"slow"}
    # Of the window, and of what is used again, and not all of them.
    assert 5 < most <= 40
    with pytest.raises(ValueError, match="ObjectDataset"):
        Loader([1, 2], prefetch_tier="fast")


def test_a_loader_that_is_left_brings_objects_back(store: terrace.Store) -> None:
    admin = store.admin()
    data = dataset(store)
    for name in data.names:
        admin.migrate(name, "slow")
    assert admin.wait_idle(60)
    for _ in Loader(data, batch_size=5, prefetch_tier="fast"):
        break
    assert admin.wait_idle(60)
    assert {admin.explain(name).segments[0].tier for name in data.names} == {"slow"}


class _Refused(RuntimeError):
    pass


def _refuse_one(data: bytes) -> int:
    number = decode(data)
    if number == 23:
        raise _Refused("sample 23 is refused")
    return number


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_of_a_transform_is_that_of_the_loader(
    store: terrace.Store, workers: int
) -> None:
    admin = store.admin()
    data = ObjectDataset(store.address, prefix="images/", transform=_refuse_one)
    for name in data.names:
        admin.migrate(name, "slow")
    assert admin.wait_idle(60)
    loader = Loader(data, batch_size=5, num_workers=workers, prefetch_tier="fast")
    for _ in range(2):
        batches = iter(loader)
        found = [next(batches).tolist() for _ in range(4)]
        with pytest.raises(_Refused, match="sample 23 is refused"):
            next(batches)
        assert sum(found, []) == list(range(20))
        # The prefetcher has ended, and brought back what it promoted.
        assert admin.wait_idle(60)
        assert {admin.explain(name).segments[0].tier for name in data.names} == {"slow"}


_LEFT_AT_THE_END = """
import sys
from terrace.torch import Loader, ObjectDataset
data = ObjectDataset(sys.argv[1], prefix="images/")
loader = Loader(
    data, batch_size=5, num_workers=2, prefetch_tier="fast", collate_fn=len,
    multiprocessing_context=sys.argv[2],
)
if __name__ == "__main__":
    batches = iter(loader)
    assert next(batches) == 5
    print("ends")
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_interpreter_ends_in_the_middle_of_an_epoch(
    store: terrace.Store, tmp_path: Path, method: str
) -> None:
    program = tmp_path / "left.py"
    program.write_text(_LEFT_AT_THE_END)
    command = [sys.executable, str(program), store.address, method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr


def test_checkpoints_are_replaced_atomically(store: terrace.Store) -> None:
    model = torch.nn.Linear(300, 300)
    terrace_torch.save(store.address, "checkpoints/1", model.state_dict())
    found = terrace_torch.load(store.address, "checkpoints/1")
    assert all(torch.equal(found[key], value) for key, value in model.state_dict().items())

    class Unpicklable:
        def __reduce__(self) -> Any:
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        terrace_torch.save(store.address, "checkpoints/1", [torch.zeros(9), Unpicklable()])
    again = terrace_torch.load(store.address, "checkpoints/1")
    assert torch.equal(again["weight"], found["weight"])


def test_an_asynchronous_save_holds_the_values_at_the_call(store: terrace.Store) -> None:
    state = {"weight": torch.ones(1000), "step": (1, [torch.zeros(3)])}
    future = terrace_torch.save_async(store.address, "checkpoints/2", state)
    state["weight"].zero_()
    future.result(60)
    found = terrace_torch.load(store.address, "checkpoints/2")
    assert found["weight"].sum() == 1000
    assert found["step"][0] == 1
    future = terrace_torch.save_async(store.address, "", state)
    with pytest.raises(terrace.Invalid):
        future.result(60)


Point = collections.namedtuple("Point", ["x", "y"])  # noqa: PYI024


def test_an_asynchronous_save_saves_what_save_does(store: terrace.Store) -> None:
    model = torch.nn.Linear(3, 3)
    tensor = torch.ones(4, 4)
    array = np.ones(5)
    value = {
        "counter": collections.Counter("aab"),
        "default": collections.defaultdict(list, a=[torch.ones(2)]),
        "point": Point(torch.ones(2), 3),
        "array": array,
        "tied": [tensor, tensor, tensor[1:]],
        "model": model.state_dict(),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    future = terrace_torch.save_async(store.address, "checkpoints/3", value)
    array[:] = 0
    tensor.zero_()
    value["point"].x.zero_()
    value["counter"]["a"] = 9
    future.result(60)
    options: Any = {} if torch.__version__ < "1.14" else {"weights_only": False}
    found = terrace_torch.load(store.address, "checkpoints/3", **options)
    assert found["counter"] == collections.Counter("aab")
    assert isinstance(found["counter"], collections.Counter)
    assert found["default"].default_factory is list
    assert found["point"].x.tolist() == [1, 1]
    assert isinstance(found["point"], Point)
    assert found["array"].tolist() == [1] * 5
    assert found["tied"][0].sum() == 16
    found["tied"][0][1] = 5
    assert found["tied"][1][1].tolist() == found["tied"][2][0].tolist() == [5] * 4
    assert found["model"]._metadata == model.state_dict()._metadata
    assert isinstance(found["parameter"], torch.nn.Parameter)

    class Unpicklable:
        def __reduce__(self) -> Any:
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        terrace_torch.save_async(store.address, "checkpoints/3", Unpicklable())


def test_saves_that_overlap_share_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terrace.Store.create(tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    value = torch.ones(1 << 20)
    for _ in range(5):
        names = [f"checkpoints/{number}" for number in range(6)]
        futures = [terrace_torch.save_async("store", name, value) for name in names]
        monkeypatch.chdir("/")
        for future in futures:
            future.result(60)
        monkeypatch.chdir(tmp_path)
    with terrace.Store("store") as store:
        assert sorted(store.list("checkpoints/")) == names


_FULL = """
import errno, sys, torch, terrace, terrace.torch
from terrace._store import Object
value = [torch.zeros(1 << 20) for _ in range(8)]
terrace.torch.save(sys.argv[1], "checkpoints/4", 1)
write, count = Object.write, 0
def full(file, data):
    global count
    count += 1
    if count > 1:
        raise OSError(errno.ENOSPC, "full")
    return write(file, data)
Object.write = full
for save in (
    lambda: terrace.torch.save(sys.argv[1], "checkpoints/4", value),
    lambda: terrace.torch.save_async(sys.argv[1], "checkpoints/4", value).result(60),
):
    count = 0
    try:
        save()
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    else:
        raise AssertionError("it was saved")
assert terrace.torch.load(sys.argv[1], "checkpoints/4") == 1
print("done")
"""


def test_a_write_that_fails_is_an_exception_of_save(store: terrace.Store) -> None:
    command = [sys.executable, "-P", "-c", _FULL, store.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_all_names_can_be_imported() -> None:
    names: dict[str, Any] = {}
    exec("from terrace.torch import *", names)
    assert set(terrace_torch.__all__) <= names.keys()
