# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The process of a policy: takes the calls of a store, or a replay, and answers them with what
`terrace.policy` offers to authors. docs/formats/policy-program.md says how both sides talk."""

from __future__ import annotations

import contextlib
import gc
import json
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from dataclasses import fields
from pathlib import Path
from typing import Any

from terrace.policy import (
    MISSING,
    STAT,
    SYNC,
    Actions,
    Parameter,
    Policy,
    Rule,
    Unsupported,
    View,
    load,
    parameters,
)

if MISSING is None:
    import numpy as np

    from terrace.policy import EVENT, SEGMENT, _Bytes

# What both sides speak.
VERSION = 4

_PREFIX = struct.Struct("<IIQ")
_OK, _INVALID, _NOT_FOUND, _UNSUPPORTED, _FAILED = 0, 1, 2, 3, 6
_START, _OBSERVE, _PLAN, _MESSAGE, _SET_PARAMETER, _SAVE, _RESTORE = range(1, 8)


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Host:
    """Answers calls with a policy."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._policy: Policy | None = None
        self._view: View | None = None
        self._parameters: list[Parameter] = []
        self._told: dict[str, Any] = {}

    def answer(
        self, call: int, head: dict[str, Any], body: bytes, memory: int | None
    ) -> tuple[int, bytes, bytes]:
        """Status, head and body of the answer."""
        try:
            if call == _START:
                said, out = self._start(head, memory), b""
            else:
                said, out = self._call(call, head, body)
            return _OK, _json(said), out
        except _Refused as refused:
            return refused.status, _json({"error": str(refused)}), b""
        except Unsupported as refused:
            return _UNSUPPORTED, _json({"error": str(refused)}), b""
        except BaseException as error:
            is_refusal = call in (_MESSAGE, _RESTORE) or (call == _START and self._policy is None)
            if isinstance(error, ValueError) and is_refusal:
                return _INVALID, _json({"error": str(error)}), b""
            print(traceback.format_exc(), file=sys.stderr, end="")
            return _FAILED, _json({"error": _summary(error)}), b""

    def rest(self) -> None:
        """Does what no caller has to wait for."""
        if self._view is not None:
            self._view._catch_up()

    def _start(self, head: dict[str, Any], memory: int | None) -> dict[str, Any]:
        if MISSING is not None:
            raise ValueError(
                f"{MISSING} for {sys.executable}: install python3-numpy, or numpy with pip, or let"
                " TERRACE_PYTHON name a Python that has it"
            )
        if head["version"] != VERSION:
            raise ValueError(f"terrace speaks version {head['version']}, this file {VERSION}")
        if memory is None:
            raise ValueError("terrace lent no memory")
        self._memory = _Memory(memory)
        chosen = load(self._path)
        self._parameters = list(parameters(chosen))
        if not all(kind in (STAT, SYNC) for kind in chosen.interest):
            raise ValueError(f"expected STAT and SYNC in `interest`, not {chosen.interest!r}")
        self._view = View(head["seed"])
        self._view._update(head | {"events": 0, "changed": 0, "keys": []}, self._memory.take(0))
        self._policy = chosen(self._view)
        gc.freeze()  # What was loaded stays: looking through it again and again takes milliseconds.
        said = {
            "name": chosen.__name__,
            "state_version": chosen.state_version,
            "interest": list(chosen.interest),
        }
        return said | self._told_anew()

    def _call(self, call: int, head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        policy, view = self._policy, self._view
        if policy is None or view is None:
            raise _Refused(_FAILED, "it was not started")
        if call == _SET_PARAMETER:
            self._set_parameter(policy, head["name"], head["value"])
            return self._told_anew(), b""
        events = view._update(head, self._memory.take(_news_bytes(head)))
        if len(events) > 0:
            policy.observe(view, events)
        said: dict[str, Any] = {}
        out = b""
        if call == _PLAN:
            actions = Actions(view, head["bytes_left"], head["count_left"])
            policy.plan(view, actions)
            out, said = b"".join(actions._packed), {"reasons": list(actions._reasons)}
        elif call == _MESSAGE:
            out = policy.message(view, head["kind"], body)
        elif call == _SAVE:
            out = policy.save(view)
        elif call == _RESTORE:
            policy.restore(view, head["state_version"], body)
        if not isinstance(out, bytes | bytearray):
            raise TypeError(f"expected bytes, not {type(out).__name__}")
        return said | self._told_anew(), bytes(out)

    def _set_parameter(self, policy: Policy, name: str, text: str) -> None:
        known = {one.name: one for one in self._parameters}
        if name not in known:
            names = f"only {', '.join(known)}" if known else "it has none"
            raise _Refused(_NOT_FOUND, f"the policy has no such parameter, {names}")
        before = getattr(policy, name)
        try:
            setattr(policy, name, known[name].parse(text))
            policy.parameter_changed(name)
        except ValueError as error:
            setattr(policy, name, before)
            raise _Refused(_INVALID, str(error)) from None

    def _told_anew(self) -> dict[str, Any]:
        """Placement and parameters, where they are others than were told."""
        policy = self._policy
        assert policy is not None
        place = policy.placement
        rules = [
            {one.name: getattr(rule, one.name) for one in fields(Rule)} for rule in place.rules
        ]
        now = {
            "placement": {"tier": place.tier, "segment_bytes": place.segment_bytes, "rules": rules},
            "parameters": [
                (one.name, one.show(getattr(policy, one.name)), one.description, one.bounds())
                for one in self._parameters
            ],
        }
        new = {name: value for name, value in now.items() if self._told.get(name) != value}
        self._told = now
        return new


# Numbers may be NumPy's.
_ENCODER = json.JSONEncoder(default=lambda value: value.item())


def _json(said: dict[str, Any]) -> bytes:
    """An object as it is sent."""
    return _ENCODER.encode(said).encode()


def _summary(error: BaseException) -> str:
    """An exception in one line, with the place where it left the policy."""
    text = "".join(traceback.format_exception_only(error)).strip().replace("\n", "; ")
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename[0] != "<"
    ]
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})" if frames else text


class _Memory:
    """Where the store puts the news of each call, in the place of those before.

    They are copied out at once, so that arrays that a policy keeps stay as they are. The copy goes
    to the same room again where nobody kept what was there: new memory costs more than the rest.
    """

    # Copies between addresses that are not of the same cache line are several times as slow.
    _ALIGNMENT = 64

    def __init__(self, file: int) -> None:
        self._shared = np.frombuffer(mmap.mmap(file, 0, prot=mmap.PROT_READ), np.uint8)
        os.close(file)
        self._renew(0)

    def take(self, count: int) -> _Bytes:
        """So many bytes, in memory that is the caller's."""
        has_other_users = sys.getrefcount(self._room) > self._users_alone
        if has_other_users or len(self._room) < count + self._ALIGNMENT:
            self._renew(count)
        taken = self._room[self._start : self._start + count]
        taken[:] = self._shared[:count]
        return taken

    def _renew(self, count: int) -> None:
        self._room: _Bytes = np.empty(count + self._ALIGNMENT, np.uint8)
        self._start = -self._room.__array_interface__["data"][0] % self._ALIGNMENT
        self._users_alone = sys.getrefcount(self._room)


def _news_bytes(head: dict[str, Any]) -> int:
    slot_bytes = 4
    changed: int = head["changed"] * (SEGMENT.itemsize + slot_bytes)
    events: int = head["events"] * EVENT.itemsize
    return events + changed


def _serve(host: _Host, peer: socket.socket) -> None:
    """Answers until the other side has gone."""
    prefix, files, _, _ = socket.recv_fds(peer, _PREFIX.size, 1)
    prefix += _receive(peer, _PREFIX.size - len(prefix))
    while len(prefix) == _PREFIX.size:
        call, head_bytes, body_bytes = _PREFIX.unpack(prefix)
        head, body = _receive(peer, head_bytes), _receive(peer, body_bytes)
        if len(head) < head_bytes or len(body) < body_bytes:
            return
        memory = files.pop() if files else None
        status, text, out = host.answer(call, json.loads(head), body, memory)
        peer.sendall(_PREFIX.pack(status, len(text), len(out)) + text + out)
        host.rest()
        prefix = _receive(peer, _PREFIX.size)


def _receive(peer: socket.socket, count: int) -> bytes:
    """As many bytes; fewer where there are no more."""
    if count == 0:
        return b""
    whole = bytearray(count)
    left = memoryview(whole)
    while len(left) > 0:
        received = peer.recv_into(left)
        if received == 0:
            break
        left = left[received:]
    return bytes(whole[: count - len(left)])


def _end_with(peer: socket.socket) -> None:
    """Ends this process once its peer or who started it has gone, also where the policy is in a
    call for ever."""
    gone = select.poll()
    gone.register(peer, select.POLLRDHUP)
    with contextlib.suppress(OSError):  # Before Linux 5.3, and where it has gone already.
        gone.register(os.pidfd_open(os.getppid()), select.POLLIN)
    gone.poll()
    time.sleep(0.2)  # The main thread usually sees it, and ends properly.
    os._exit(1)


def main(path: str) -> None:
    """Serves the policy of a file over standard input, which is a socket."""
    # These go to everything at a terminal or in a service. Who started this ends it, once its state
    # is saved, or has gone, which ends it, too.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    # One that leaks shall fail by itself, and be the first to go where memory is short.
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    resource.setrlimit(resource.RLIMIT_DATA, (half, half))
    with contextlib.suppress(OSError):  # A container may not offer it; the limit above holds.
        Path("/proc/self/oom_score_adj").write_text("800")
    with socket.socket(fileno=os.dup(0)) as peer:
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        threading.Thread(target=_end_with, args=[peer], daemon=True).start()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            _serve(_Host(path), peer)
