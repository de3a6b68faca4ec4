# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`torch.distributed.checkpoint` with stores: ranks of gloo save and load together."""

from __future__ import annotations

import errno
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import terrace

dcp = pytest.importorskip(
    "torch.distributed.checkpoint", reason="checkpoints of all ranks need PyTorch 2.2 or later"
)

from terrace.torch import CheckpointReader, CheckpointWriter  # noqa: E402

RANKS = 2
SECONDS_MAX = 120

# What each rank runs: `step` is the body of a test.
_RANK = """
import datetime, io, sys, torch, torch.distributed as dist
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import ChunkShardingSpec
import torch.distributed.checkpoint as dcp
import terrace
from terrace.torch import CheckpointReader, CheckpointWriter

rank, ranks, port, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group(
    "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks,
    timeout=datetime.timedelta(seconds=60),
)

def state(scale, seed=0):
    spec = ChunkShardingSpec(dim=0, placements=[f"rank:{one}/cpu" for one in range(ranks)])
    sharded = sharded_tensor.empty(spec, 1000, 300)
    for shard in sharded.local_shards():
        first = shard.metadata.shard_offsets[0]
        rows = torch.arange(first, first + shard.tensor.size(0), dtype=torch.float32)
        shard.tensor.copy_(rows[:, None].expand_as(shard.tensor) * scale)
    # A view of a larger tensor, of which the view alone is saved.
    whole = torch.arange(20000.0) * scale
    return {"sharded": sharded, "view": whole[100:200], "step": [scale, "text"]}

def check(found, scale):
    for shard in found["sharded"].local_shards():
        first = shard.metadata.shard_offsets[0]
        rows = torch.arange(first, first + shard.tensor.size(0), dtype=torch.float32)
        assert torch.equal(shard.tensor, rows[:, None].expand_as(shard.tensor) * scale)
    assert torch.equal(found["view"], torch.arange(100.0, 200.0) * scale), found["view"]

def save(what, writer):
    dcp.save(what, storage_writer=writer)

def load(into, reader):
    dcp.load(into, storage_reader=reader)

"""


def ranks(address: str, step: str, number: int = RANKS) -> None:
    """Runs `step` on each rank."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _RANK + step, str(rank), str(number), str(port), address],
            stderr=subprocess.PIPE, text=True,
        )
        for rank in range(number)
    ]  # fmt: skip
    try:
        ended = [one.communicate(timeout=SECONDS_MAX) for one in running]
    finally:
        for one in running:
            one.kill()
    assert [one.returncode for one in running] == [0] * number, [errors for _, errors in ended]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[terrace.Store]:
    """A store of this process, which serves the ranks."""
    terrace.Store.create(tmp_path / "store")
    with terrace.Store(tmp_path / "store") as store:
        yield store


def test_ranks_save_and_load_together(store: terrace.Store) -> None:
    ranks(
        store.address,
        """
save(state(2), CheckpointWriter(address, "runs/one"))
found = state(0)
load(found, CheckpointReader(address, "runs/one"))
check(found, 2)
assert found["step"] == [2, "text"], found["step"]
""",
    )
    # Each rank wrote what it has, and everything is as durable as was promised.
    names = list(store.list("runs/"))
    assert len(names) == RANKS + 1
    assert "runs/one/.metadata" in names
    admin = store.admin()
    assert {admin.explain(name).persistency for name in names} == {"storage"}
    # The view of 100 numbers did not bring the 20,000 around it along.
    assert sum(store.stat(name).size_bytes for name in names) < 1000 * 300 * 4 + 40_000
    # With another number of ranks.
    ranks(
        store.address,
        """
found = state(0)
load(found, CheckpointReader(address, "runs/one"))
check(found, 2)
""",
        number=3,
    )


def test_a_save_replaces_the_checkpoint_before_atomically(store: terrace.Store) -> None:
    ranks(
        store.address,
        """
save(state(1), CheckpointWriter(address, "runs/one"))
class Unpicklable:
    def __reduce__(self):
        raise RuntimeError("in the middle")
failed = state(3)
failed["step"] = Unpicklable()
try:
    save(failed, CheckpointWriter(address, "runs/one"))
except BaseException as error:
    assert "in the middle" in str(error), error
else:
    raise AssertionError("it was saved")
found = state(0)
load(found, CheckpointReader(address, "runs/one"))
check(found, 1)
""",
    )
    writer = CheckpointWriter(store.address, "runs/one")
    names = set(store.list("runs/"))
    left = set(writer.remove_unfinished())
    kept = set(store.list("runs/"))
    assert len(kept) == RANKS + 1
    assert kept == names - left
    assert writer.remove_unfinished() == []
    ranks(
        store.address,
        """
save(state(4), CheckpointWriter(address, "runs/one"))
found = state(0)
load(found, CheckpointReader(address, "runs/one"))
check(found, 4)
""",
    )
    # What the first save wrote is gone.
    after = set(store.list("runs/"))
    assert after & kept == {"runs/one/.metadata"}
    assert len(after) == RANKS + 1


def test_one_process_without_ranks(store: terrace.Store) -> None:
    model = torch.nn.Linear(40, 30)
    writer = CheckpointWriter(store.address, "runs/alone")
    dcp.save(model.state_dict(), storage_writer=writer)
    other = torch.nn.Linear(40, 30)
    reader = CheckpointReader(store.address, "runs/alone")
    found = other.state_dict()
    dcp.load(found, storage_reader=reader)
    assert torch.equal(found["weight"], model.weight)
    assert torch.equal(found["bias"], model.bias)
    missing = CheckpointReader(store.address, "runs/none")
    with pytest.raises(FileNotFoundError):
        missing.read_metadata()
    with pytest.raises(ValueError, match="no name"):
        CheckpointReader(store.address).read_metadata()


def test_an_asynchronous_save_that_has_ended_survives_its_server(tmp_path: Path) -> None:
    """The owner of the store is killed when the save says that it is done."""
    directory = tmp_path / "store"
    terrace.Store.create(directory)
    owner = _owner(directory)
    try:
        ranks(
            str(directory),
            """
future = dcp.async_save(state(5), storage_writer=CheckpointWriter(address, "runs/one"))
future.result(60)
""",
        )
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait(SECONDS_MAX)
    with terrace.Store(directory) as store:
        metadata = pickle.loads(store.get("runs/one/.metadata"))
        names = {place.object_name for place in metadata.storage_data.values()}
        assert len(names) == RANKS
        admin = store.admin()
        assert {admin.explain(name).persistency for name in names} == {"storage"}
        ranks(
            str(directory),
            """
found = state(0)
load(found, CheckpointReader(address, "runs/one"))
check(found, 5)
""",
        )


def _owner(directory: Path) -> subprocess.Popen[str]:
    code = """
import sys, terrace
store = terrace.Store(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(directory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert owner.stdout is not None
    assert owner.stdout.readline() == "open\n"
    return owner


def test_names_come_from_the_checkpoint_id(store: terrace.Store) -> None:
    writer: Any = CheckpointWriter(store.address)
    assert CheckpointWriter.validate_checkpoint_id("runs/7")
    assert not CheckpointWriter.validate_checkpoint_id("/")
    writer.reset("runs/7")
    assert writer.prefix == "runs/7/"
    writer.reset()
    assert writer.prefix == "runs/7/"


def test_an_object_that_was_removed_does_not_fail_the_next_save(store: terrace.Store) -> None:
    writer = CheckpointWriter(store.address, "runs/one")
    dcp.save({"step": torch.ones(3)}, storage_writer=writer)
    (old,) = (name for name in store.list("runs/") if name.endswith(".distcp"))
    store.delete(old)
    dcp.save({"step": torch.zeros(3)}, storage_writer=writer)
    found = {"step": torch.ones(3)}
    dcp.load(found, storage_reader=CheckpointReader(store.address, "runs/one"))
    assert found["step"].tolist() == [0, 0, 0]


def test_a_write_that_fails_is_an_exception_of_the_save(
    store: terrace.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = CheckpointWriter(store.address, "runs/one")
    dcp.save({"step": torch.ones(3)}, storage_writer=writer)

    def full(*_: Any) -> int:
        raise terrace.NoSpace(errno.ENOSPC, "every tier is full")

    with monkeypatch.context() as patched:
        patched.setattr(terrace.Object, "write", full)
        with pytest.raises(dcp.api.CheckpointException, match="every tier is full"):
            dcp.save({"step": torch.zeros(5 << 20)}, storage_writer=writer)
    found = {"step": torch.zeros(3)}
    dcp.load(found, storage_reader=CheckpointReader(store.address, "runs/one"))
    assert found["step"].tolist() == [1, 1, 1]
