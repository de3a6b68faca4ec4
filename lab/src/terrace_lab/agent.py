# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The agent of one host: starts commands, reads clocks and counters, ends what it started.

This file is sent to the host as it is and run there by `python3 -c`, so it uses nothing but the
standard library of Python 3.9. It reads requests from standard input and writes answers to standard
output, one JSON object a line: `{"id": 1, "do": "clock"}` is answered by `{"id": 1, "ok": …}` or
`{"id": 1, "error": "…"}`, in any order. When its input ends, because who asked is done or dead, it
ends every process group that it has started, and itself.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from typing import IO, Any

SECTOR_BYTES = 512  # of /proc/diskstats, on every kernel (Documentation/admin-guide/iostats.rst)
OUTPUT_BYTES_MAX = 64 << 20
PATH = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin"

# Where the agent itself is killed nobody else would end what it runs. By a program and not between
# fork and exec, where a process with threads may stand still for ever.
_setpriv = shutil.which("setpriv", path=PATH)
DIE_WITH_AGENT = [_setpriv, "--pdeathsig", "KILL", "--"] if _setpriv else []


def stamp() -> dict[str, int]:
    """Both clocks, in nanoseconds."""
    return {
        "real_ns": time.clock_gettime_ns(time.CLOCK_REALTIME),
        "raw_ns": time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW),
    }


SERIES_SAMPLES_MAX = 100_000  # of one repetition that nobody fetches: 14 h at 2 a second
GPU_SECONDS = 1.0  # nvidia-smi takes a good part of a second itself


class Series:
    """Samples what the host does, each period, in a thread of its own."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._lock = threading.Lock()
        self._samples: list[dict[str, Any]] = []
        self._stopped = threading.Event()
        self._gpus = Gpus()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopped.is_set():
            one = sample()
            gpus = self._gpus.newest()
            if gpus:
                one["gpus"] = gpus
            with self._lock:
                if len(self._samples) < SERIES_SAMPLES_MAX:
                    self._samples.append(one)
            # On a grid, so that a late sample does not shift all that follow; what was missed is.
            due = max(due + self._period_s, time.monotonic())
            self._stopped.wait(due - time.monotonic())

    def take(self) -> list[dict[str, Any]]:
        """The samples since the last call."""
        with self._lock:
            taken, self._samples = self._samples, []
        return taken

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._gpus.stop()


class Gpus:
    """Utilisation of NVIDIA devices by NVML, else by nvidia-smi, else nothing."""

    def __init__(self) -> None:
        self._library: Any = None
        self._newest: list[dict[str, Any]] = []
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._library = pynvml
        except Exception:  # noqa: BLE001 - whatever keeps NVML away, the program may be there
            if shutil.which("nvidia-smi", path=PATH):
                self._thread = threading.Thread(target=self._ask, daemon=True)
                self._thread.start()

    def newest(self) -> list[dict[str, Any]]:
        if self._library is None:
            return self._newest
        found = []
        try:
            for index in range(self._library.nvmlDeviceGetCount()):
                handle = self._library.nvmlDeviceGetHandleByIndex(index)
                rates = self._library.nvmlDeviceGetUtilizationRates(handle)
                memory = self._library.nvmlDeviceGetMemoryInfo(handle)
                found.append(
                    {"name": str(index), "busy": rates.gpu / 100, "memory_bytes": memory.used}
                )
        except self._library.NVMLError:
            return []
        return found

    def _ask(self) -> None:
        argv = ["nvidia-smi", "--query-gpu=index,utilization.gpu,memory.used"]
        argv += ["--format=csv,noheader,nounits"]
        while not self._stopped.is_set():
            try:
                text = subprocess.run(
                    argv,
                    capture_output=True,
                    text=True,
                    timeout=10,
                    env=dict(os.environ, PATH=PATH),
                ).stdout
                self._newest = gpus_of(text)
            except (OSError, subprocess.TimeoutExpired):
                self._newest = []
            self._stopped.wait(GPU_SECONDS)

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(10)
        if self._library is not None:
            with contextlib.suppress(self._library.NVMLError):
                self._library.nvmlShutdown()


def gpus_of(text: str) -> list[dict[str, Any]]:
    """The lines of nvidia-smi; those of devices that tell nothing are left out."""
    found = []
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == 3 and words[1].isdigit() and words[2].isdigit():
            busy, memory = int(words[1]) / 100, int(words[2]) << 20
            found.append({"name": words[0], "busy": busy, "memory_bytes": memory})
    return found


class Agent:
    """Serves one connection."""

    def __init__(self, answers: IO[bytes]) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        # Process groups by the id of the request that started them.
        self._running: dict[int, int] = {}
        self._series: Series | None = None

    def serve(self, requests: Iterable[bytes]) -> None:
        """Answers until the input ends."""
        for line in requests:
            request = json.loads(line)
            if request["do"] == "run":
                # Started here and waited for by a thread: commands sent together start together.
                self._start(request)
            else:
                self._answer(request)
        self._end_all()

    def _answer(self, request: dict[str, Any]) -> None:
        try:
            answer = getattr(self, "do_" + request["do"])(**request.get("with", {}))
        except Exception as error:  # noqa: BLE001 - whatever it is, who asked is to know
            self._send({"id": request["id"], "error": f"{type(error).__name__}: {error}"})
        else:
            self._send({"id": request["id"], "ok": answer})

    def _send(self, answer: dict[str, Any]) -> None:
        data = (json.dumps(answer, separators=(",", ":")) + "\n").encode()
        # Who asked may be gone; the end of the input says so next.
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._answers.write(data)
            self._answers.flush()

    def _start(self, request: dict[str, Any]) -> None:
        wanted = request["with"]
        environment = dict(os.environ, PATH=PATH, LC_ALL="C.UTF-8")
        environment.update(wanted.get("environment") or {})
        program = wanted["argv"][0]
        is_found = shutil.which(program, path=environment["PATH"]) is not None
        # A relative one is below the directory of the command.
        if not is_found and ("/" not in program or program.startswith("/")):
            reason = f"cannot run {program}: there is no such program"
            self._send({"id": request["id"], "error": reason})
            return
        # Closed by who waits for the end.
        files = [tempfile.TemporaryFile() for _ in range(3)]  # noqa: SIM115
        files[0].write(base64.b64decode(wanted.get("stdin", "")))
        files[0].seek(0)
        begin = stamp()
        try:
            process = subprocess.Popen(
                [*DIE_WITH_AGENT, *wanted["argv"]],
                stdin=files[0],
                stdout=files[1],
                stderr=files[2],
                cwd=wanted.get("directory"),
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            self._send({"id": request["id"], "error": f"cannot run {wanted['argv'][0]}: {error}"})
            return
        self._running[request["id"]] = process.pid
        at = start_time(process.pid)
        self._send({"id": request["id"], "started": process.pid, "at": at})
        waiting = threading.Thread(
            target=self._wait, args=(request["id"], process, files, begin, wanted["timeout_s"])
        )
        waiting.start()

    def _wait(
        self,
        number: int,
        process: subprocess.Popen[bytes],
        files: list[IO[bytes]],
        begin: dict[str, int],
        timeout_s: float,
    ) -> None:
        late = threading.Event()

        def end_late() -> None:
            late.set()
            kill_group(process.pid)

        timer = threading.Timer(timeout_s, end_late)
        timer.daemon = True
        timer.start()
        # The usage of this child alone: that of all children together would mix those side by side.
        _, status, usage = os.wait4(process.pid, 0)
        end = stamp()
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        # What it left behind in its group would go on loading the host.
        kill_group(process.pid)
        self._running.pop(number, None)
        answer = {
            "code": process.returncode,
            "begin": begin,
            "end": end,
            "user_s": usage.ru_utime,
            "system_s": usage.ru_stime,
            "is_timed_out": late.is_set(),
        }
        for name, file in (("stdout", files[1]), ("stderr", files[2])):
            file.seek(0)
            answer[name] = file.read(OUTPUT_BYTES_MAX).decode(errors="replace")
        for file in files:
            file.close()
        self._send({"id": number, "ok": answer})

    def _end_all(self) -> None:
        for group in list(self._running.values()):
            kill_group(group)

    def do_end_all(self) -> None:
        """Ends whatever runs, and nothing else: the agent goes on."""
        self._end_all()

    def do_clock(self) -> dict[str, int]:
        return stamp()

    def do_has(self, program: str) -> bool:
        return shutil.which(program, path=PATH) is not None

    def do_end(self, group: int, started: int | None) -> None:
        """Ends what is left of a process group of an earlier agent."""
        # No new process gets the number of a group that has members; one with another start has
        # got it since, so that there was none left.
        if start_time(group) in (None, started):
            kill_group(group)

    def do_write_file(self, path: str, content: str, mode: int) -> None:
        partial = path + ".partial"
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.b64decode(content))
        os.chmod(partial, mode)
        os.replace(partial, path)

    def do_counters(self) -> dict[str, Any]:
        return counters()

    def do_series_begin(self, period_s: float) -> None:
        self.do_series_end()
        self._series = Series(period_s)

    def do_series_take(self) -> list[dict[str, Any]]:
        return self._series.take() if self._series else []

    def do_series_end(self) -> None:
        series, self._series = self._series, None
        if series is not None:
            series.stop()

    def do_environment(self) -> dict[str, Any]:
        return environment()

    def do_sync(self) -> None:
        os.sync()

    def do_drop_caches(self) -> None:
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3\n")


def kill_group(group: int) -> None:
    """Ends a process group at once; nothing where there is none."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def start_time(pid: int) -> int | None:
    """When a process began, in ticks since boot; None where there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def counters() -> dict[str, Any]:
    """What the host has done since it was booted, and how it is now."""
    memory = {}
    for line in slurp("/proc/meminfo").splitlines():
        name, value = line.split(":")
        if name in ("MemTotal", "MemAvailable", "Dirty", "Writeback", "Cached"):
            memory[name.lower() + "_bytes"] = int(value.split()[0]) * 1024
    return {**activity(), "load": os.getloadavg()[0], "memory": memory}


# Meters ask many times a second, and opening a file costs as much as reading it.
_open: dict[str, int] = {}
_devices: dict[str, bool] = {}


def activity() -> dict[str, Any]:
    """What the host has done since it was booted; cheap enough to be asked for all the time."""
    ticks = os.sysconf("SC_CLK_TCK")
    words = slurp("/proc/stat", 512).split(None, 9)[1:9]
    user, nice, system, idle, waiting, irq, softirq, steal = (int(one) / ticks for one in words)
    disks = {}
    for line in slurp("/proc/diskstats").splitlines():
        words = line.split()
        is_unused = words[3] == words[7] == "0"
        if is_unused or not is_device(words[2]):
            continue
        disks[words[2]] = {
            "reads": int(words[3]),
            "read_bytes": int(words[5]) * SECTOR_BYTES,
            "writes": int(words[7]),
            "written_bytes": int(words[9]) * SECTOR_BYTES,
            "in_flight": int(words[11]),
            "busy_s": int(words[12]) / 1e3,
        }
    network = {}
    for line in slurp("/proc/net/dev").splitlines()[2:]:
        name, _, rest = line.partition(":")
        words = rest.split()
        network[name.strip()] = {"received_bytes": int(words[0]), "sent_bytes": int(words[8])}
    return {
        "at": stamp(),
        "processors": os.cpu_count(),
        "cpu": {
            "busy_s": user + nice + system + irq + softirq,
            "idle_s": idle + waiting,
            "steal_s": steal,
        },
        "disks": disks,
        "network": network,
    }


CPU_KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def sample() -> dict[str, Any]:
    """What the host has done since it was booted, in the detail of a time series."""
    ticks = os.sysconf("SC_CLK_TCK")
    text = slurp("/proc/stat")
    seconds = [int(one) / ticks for one in text.split(None, 9)[1:9]]
    switches = next(
        (int(line.split()[1]) for line in text.splitlines() if line.startswith("ctxt ")), 0
    )
    memory = {}
    for line in slurp("/proc/meminfo").splitlines():
        name, value = line.split(":")
        if name in ("MemTotal", "MemAvailable", "Dirty", "Cached"):
            memory[name.lower() + "_bytes"] = int(value.split()[0]) * 1024
    done = activity()
    return {
        "at": done["at"],
        "processors": done["processors"],
        "cpu_s": {kind: seconds[index] for index, kind in enumerate(CPU_KINDS)},
        "memory": memory,
        "context_switches": switches,
        "disks": {
            name: {key: one[key] for key in ("read_bytes", "written_bytes", "busy_s")}
            for name, one in done["disks"].items()
        },
        "network": done["network"],
    }


def slurp(path: str, most: int = 1 << 24) -> str:
    """The begin of a file of /proc, which stays open; the kernel gives a page or so at a time."""
    if path not in _open:
        _open[path] = os.open(path, os.O_RDONLY)
    found = b""
    while len(found) < most:
        piece = os.pread(_open[path], min(most, 1 << 16), len(found))
        if not piece:
            break
        found += piece
    return found.decode(errors="replace")


def is_device(name: str) -> bool:
    """Whether a block device is a whole one; what a partition does its device counts, too."""
    if name not in _devices:
        _devices[name] = os.path.exists("/sys/block/" + name.replace("/", "!"))
    return _devices[name]


def read(path: str) -> str | None:
    """First line of a small file; None where it cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return None


def packages() -> dict[str, str]:
    """Versions of what may matter, where dpkg knows them."""
    wanted = [
        *("fio", "ior", "mdtest", "openmpi-bin", "iperf3", "e2fsprogs", "xfsprogs", "btrfs-progs"),
        *("ceph-common", "ceph-mgr", "ceph-osd", "glusterfs-server", "moosefs-client"),
        *("moosefs-master", "nfs-ganesha", "nfs-kernel-server", "nfs-common", "beegfs-client"),
        "terrace",
    ]
    found: dict[str, str] = {}
    try:
        listed = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${db:Status-Status}\n", *wanted],
            capture_output=True,
            text=True,
            timeout=20,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return found
    for line in listed.splitlines():
        name, version, status = line.split("\t")
        if status == "installed":
            found[name] = version
    return found


def environment() -> dict[str, Any]:
    """What the host is: kernel, processors, memory, devices, mounts, packages, clock."""
    model = None
    with open("/proc/cpuinfo", errors="replace") as file:
        for line in file:
            if line.startswith(("model name", "Model")):
                model = line.partition(":")[2].strip()
                break
    with open("/proc/self/mounts", errors="replace") as file:
        mounts = [line.split()[:4] for line in file]
    devices = {}
    for name in sorted(os.listdir("/sys/block")) if os.path.isdir("/sys/block") else []:
        if not name.startswith(("loop", "ram")):
            devices[name] = {
                "model": read(f"/sys/block/{name}/device/model"),
                "firmware": read(f"/sys/block/{name}/device/firmware_rev"),
                "bytes": int(read(f"/sys/block/{name}/size") or 0) * SECTOR_BYTES,
                "rotational": read(f"/sys/block/{name}/queue/rotational"),
                "scheduler": read(f"/sys/block/{name}/queue/scheduler"),
            }
    links = {}
    for name in sorted(os.listdir("/sys/class/net")) if os.path.isdir("/sys/class/net") else []:
        links[name] = {
            "mtu": read(f"/sys/class/net/{name}/mtu"),
            "mbit_s": read(f"/sys/class/net/{name}/speed"),
        }
    tracking = None
    if shutil.which("chronyc", path=PATH):
        asked = subprocess.run(
            ["chronyc", "-c", "tracking"], capture_output=True, text=True, timeout=5
        )
        tracking = asked.stdout.strip() or None
    return {
        "hostname": platform.node(),
        "boot_id": read("/proc/sys/kernel/random/boot_id"),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "processor": model,
        "processors": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "page_bytes": resource.getpagesize(),
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "boost": read("/sys/devices/system/cpu/cpufreq/boost"),
        "command_line": read("/proc/cmdline"),
        "mounts": mounts,
        "devices": devices,
        "network": links,
        "chrony": tracking,
        "packages": packages(),
    }


if __name__ == "__main__":
    # Ctrl-C in a terminal is for who asked; they close the input when they are done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Agent(sys.stdout.buffer).serve(sys.stdin.buffer)
