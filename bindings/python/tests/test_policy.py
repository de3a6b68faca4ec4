# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a policy's author meets of `terrace.policy`, without a store."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from terrace import host, policy
from terrace.policy import EVENT, OPEN, READ, SEGMENT, WRITE, Actions, Parameter, Policy, View


def tier(**told: Any) -> dict[str, Any]:
    whole: dict[str, Any] = dict.fromkeys(policy.Tier.__dataclass_fields__, 0)
    return whole | {"name": "fast", "capacity_bytes": None} | told


def view(sizes: list[int]) -> View:
    """A view of one tier and live segments of these sizes."""
    rows = np.zeros(len(sizes), SEGMENT)
    rows["size_bytes"], rows["is_live"], rows["incarnation"] = sizes, True, 1
    head = {
        "now_ns": 5,
        "tiers": [tier(), tier(name="slow", capacity_bytes=10)],
        "slots": len(sizes),
        "events": 0,
        "changed": len(sizes),
        "keys": [[slot, f"a/{slot}"] for slot in range(len(sizes))],
    }
    shown = View(1)
    news = rows.tobytes() + np.arange(len(sizes), dtype="<u4").tobytes()
    shown._update(head, np.frombuffer(news, np.uint8))
    return shown


def test_records_have_the_sizes_of_the_format() -> None:
    assert (EVENT.itemsize, SEGMENT.itemsize) == (56, 72)


def test_a_view_shows_what_it_was_told() -> None:
    shown = view([3, 4])
    assert shown.keys == ["a/0", "a/1"]
    assert shown.segments["size_bytes"].tolist() == [3, 4]
    assert shown.tiers[0].capacity_bytes == float("inf")
    assert shown.tiers[1].capacity_bytes == 10
    assert shown.live().tolist() == shown.on(0).tolist() == [0, 1]
    assert shown.on(1).tolist() == []


def test_tiers_stay_as_they_are_until_told_anew() -> None:
    shown = view([3])
    before = shown.tiers
    shown.tiers.clear()  # Whoever does so has harmed their own list.
    head: dict[str, Any] = {"now_ns": 6, "slots": 1, "events": 0, "changed": 0, "keys": []}
    shown._update(head, np.zeros(0, np.uint8))
    assert (shown.now_ns, shown.tiers) == (6, before)
    shown._update(head | {"tiers": [tier(used_bytes=3)]}, np.zeros(0, np.uint8))
    assert [one.used_bytes for one in shown.tiers] == [3]


def test_a_view_follows_what_was_read_and_written() -> None:
    shown = view([10, 10, 10])
    events = np.zeros(5, EVENT)
    events["kind"] = [READ, WRITE, READ, OPEN, WRITE]
    events["slot"] = [0, 1, 0, 2, 2]
    events["time_ns"] = [1, 2, 3, 4, 5]
    events["offset_bytes"], events["length_bytes"] = 8, 8
    row = shown.segments[2:3].copy()
    row["opens"] = 1
    news = events.tobytes() + row.tobytes() + np.array([2], "<u4").tobytes()
    head = {"now_ns": 6, "tiers": [tier()], "slots": 3, "events": 5, "changed": 1, "keys": []}
    seen = shown._update(head, np.frombuffer(news, np.uint8))
    assert seen.tobytes() == events.tobytes()
    segments = shown.segments
    assert segments["last_read_ns"].tolist() == [3, 0, 0]
    assert segments["last_write_ns"].tolist() == [0, 2, 0], "the row is as it is after all"
    assert segments["size_bytes"].tolist() == [10, 16, 10]
    assert segments["opens"].tolist() == [0, 0, 1]


def test_news_that_somebody_keeps_are_not_written_again() -> None:
    file = os.memfd_create("news")
    os.ftruncate(file, 4096)
    memory = host._Memory(os.dup(file))

    def take(text: bytes) -> policy._Bytes:
        os.pwrite(file, text, 0)
        return memory.take(len(text))

    def place(taken: policy._Bytes) -> int:
        address: int = taken.__array_interface__["data"][0]
        return address

    first = take(b"one")
    where = place(first)
    assert where % 64 == 0
    kept = first[1:].view("S1")
    del first
    assert place(take(b"two")) != where
    assert kept.tolist() == [b"n", b"e"]
    where = place(take(b"three"))
    assert place(take(b"four")) == where, "nobody has it any longer"
    take(b"five")[0] = ord("F")
    assert take(b"").tolist() == []


def test_a_view_grows() -> None:
    shown = view([1])
    head = {"now_ns": 6, "tiers": [tier()], "slots": 5000, "events": 0, "changed": 0, "keys": []}
    shown._update(head, np.zeros(0, np.uint8))
    assert len(shown.segments) == len(shown.keys) == 5000
    assert shown.segments["size_bytes"][0] == 1
    assert shown.live().tolist() == [0]


def test_actions_stop_at_the_budget() -> None:
    actions = Actions(view([6, 6]), bytes_left=10, count_left=5)
    assert actions.promote(0, to=0, reason="hot")
    assert not actions.promote(1, to=0, reason="hot"), "6 of 4 bytes"
    assert actions.drop_copy(1, tier=1, reason="room"), "copies nothing"
    assert (actions.bytes_left, actions.count_left) == (4, 3)


def test_a_slot_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(IndexError, match="no slot 2, only 2"):
        Actions(view([1, 1]), 10, 10).move(2, to=1, reason="")


def test_parameters_are_listed_once_bases_first() -> None:
    class Base(Policy):
        high = Parameter(0.9, "a share", 0, 1)

    class Mine(Base):
        low = Parameter(1, "a number")

    mine = Mine(view([]))
    assert [one.name for one in policy.parameters(Mine)] == ["high", "low"]
    mine.high = 0.5
    assert (mine.high, Mine(view([])).high) == (0.5, 0.9)


def test_a_file_has_one_policy(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from terrace.policy import Policy\nclass A(Policy): pass\nclass B(A): pass\n")
    assert policy.load(str(file)).__name__ == "B"
    file.write_text("class A: pass\n")
    with pytest.raises(ValueError, match="one class derived"):
        policy.load(str(file))


def test_a_program_answers_until_its_peer_has_gone(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from terrace.policy import READ, Policy\n"
        "class Mine(Policy):\n"
        "    reads = 0\n"
        "    def observe(self, view, events):\n"
        "        self.reads += int((events['kind'] == READ).sum())\n"
        "    def message(self, view, kind, body):\n"
        "        return b'%d' % self.reads\n"
    )
    ours, theirs = socket.socketpair()
    command = [
        sys.executable,
        "-c",
        "import sys; from terrace.host import main; main(sys.argv[1])",
    ]
    root = Path(__file__).parent.parent
    program = subprocess.Popen([*command, str(file)], stdin=theirs.fileno(), cwd=root)
    theirs.close()

    memory = os.memfd_create("news")
    os.ftruncate(memory, 4096)
    lent = [memory]

    def ask(call: int, head: dict[str, Any]) -> tuple[int, Any, bytes]:
        text = json.dumps(head).encode()
        socket.send_fds(ours, [struct.pack("<IIQ", call, len(text), 0) + text], lent)
        lent.clear()
        stream = ours.makefile("rb")
        status, head_bytes, body_bytes = struct.unpack("<IIQ", stream.read(16))
        return status, json.loads(stream.read(head_bytes)), stream.read(body_bytes)

    shown = {"now_ns": 1, "tiers": [tier()], "slots": 0}
    status, said, _ = ask(1, shown | {"version": host.VERSION, "seed": 7})
    assert (status, said["name"]) == (0, "Mine")
    events = np.zeros(3, EVENT)
    events["kind"] = READ
    shown |= {"slots": 1, "events": 3, "changed": 0, "keys": []}
    os.pwrite(memory, events.tobytes(), 0)
    status, _, reply = ask(4, shown | {"kind": "how many"})
    assert (status, reply) == (0, b"3")
    ours.close()
    assert program.wait(timeout=30) == 0
