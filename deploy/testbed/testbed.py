#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Hosts for tests of packages and playbooks, on one machine and without any service of it.

A host is a container that systemd-nspawn boots: systemd, sshd and Python of the image of make-image.sh, with a writable
layer, a network namespace and disks (sparse files on loop devices) of its own. All hosts are on one bridge in a namespace
of the test bed, so that nothing reaches the network of the machine.

    testbed.py up N       boots hosts h1 to hN and prints the inventory
    testbed.py exec HOST COMMAND...
    testbed.py down       ends the hosts of TESTBED_DIR and removes all that they had
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "terrace"
IMAGE = Path(os.environ.get("TESTBED_IMAGE") or CACHE / "testbed-image")
NETWORK = "10.98.0"
DISKS = "abc"
BOOT_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
SSH_OPTIONS = [
    "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
    "-o", "BatchMode=yes", "-o", "ConnectTimeout=5",
    # A host that is cut off is one after 15 s, also where a connection is open.
    "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3",
]  # fmt: skip


class TestBedError(Exception):
    """The machine cannot boot hosts, or one did not come up."""


def run(*command: str | Path, check: bool = True) -> str:
    """Runs a command of the machine; returns what it printed."""
    words = [str(word) for word in command]
    ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    if check and ran.returncode != 0:
        raise TestBedError(f"{' '.join(words)}: status {ran.returncode}: {ran.stdout.strip()}")
    return ran.stdout


def cgroup2() -> Path:
    """Where the unified hierarchy of cgroups is mounted; it is mounted where it is nowhere."""
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    place = Path("/run/terrace-testbed-cgroup")
    place.mkdir(exist_ok=True)
    run("mount", "-t", "cgroup2", "none", place)
    return place


def make_image() -> Path:
    """Builds the root file system of the hosts where it is not there; returns it."""
    run(HERE / "make-image.sh", IMAGE)
    return IMAGE / "root"


class Host:
    """One container; it can be stopped and booted again with what it wrote."""

    def __init__(self, bed: "TestBed", number: int):
        self.bed = bed
        self.number = number
        self.name = f"h{number}"
        self.address = f"{NETWORK}.{10 + number}"
        self.directory = bed.directory / self.name
        self.root = self.directory / "root"
        self.namespace = f"{bed.prefix}-{self.name}"
        self.cgroup = cgroup2() / self.namespace

    def make(self, disk_mib: int, hosts: list[tuple[str, str]]) -> None:
        for part in ("upper", "work", "root", "disks"):
            (self.directory / part).mkdir(parents=True)
        run("ip", "netns", "add", self.namespace)
        lan = self.bed.lan
        run("ip", "link", "add", "name", "eth0", "netns", self.namespace, "type", "veth", "peer", "name",
            f"p{self.number}", "netns", lan)  # fmt: skip
        run("ip", "-n", lan, "link", "set", f"p{self.number}", "master", "br0", "up")
        run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        run("ip", "-n", self.namespace, "address", "add", f"{self.address}/24", "dev", "eth0")
        run("ip", "-n", self.namespace, "link", "set", "eth0", "up")
        layers = f"lowerdir={IMAGE / 'root'},upperdir={self.directory / 'upper'},workdir={self.directory / 'work'}"
        run("mount", "-t", "overlay", self.namespace, "-o", layers, self.root)
        for disk in DISKS:
            file = self.directory / "disks" / disk
            with file.open("wb") as sparse:
                sparse.truncate(disk_mib << 20)
            loop = run("losetup", "--find", "--show", file).strip()
            with (self.directory / "loops").open("a", encoding="utf-8") as loops:
                loops.write(f"{loop}\n")
        (self.root / "etc/hostname").write_text(f"{self.name}\n", encoding="utf-8")
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in hosts)]
        (self.root / "etc/hosts").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def loops(self) -> list[str]:
        file = self.directory / "loops"
        return file.read_text(encoding="utf-8").split() if file.exists() else []

    def boot(self) -> None:
        """Starts the container; `wait` returns when it is up."""
        self.cgroup.mkdir(exist_ok=True)
        command = [
            "systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", f"--directory={self.root}",
            f"--machine={self.name}", f"--hostname={self.name}", "--resolv-conf=off", "--timezone=off",
            f"--network-namespace-path=/run/netns/{self.namespace}", "--link-journal=no", "--bind=/dev/fuse",
            "--kill-signal=SIGRTMIN+3", "--capability=CAP_NET_ADMIN,CAP_SYS_ADMIN", "--console=pipe",
        ]  # fmt: skip
        for disk, loop in zip(DISKS, self.loops(), strict=True):
            command.append(f"--bind={loop}:/dev/disk/by-id/testbed-{disk}")
        for source, target in self.bed.shared.items():
            command.append(f"--bind-ro={source}:{target}")
        environment = os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "SYSTEMD_LOG_LEVEL": "warning"}
        # Each systemd is to manage a subtree of its own: all share the unified hierarchy of the machine.
        enter = ["sh", "-c", f'echo $$ >"{self.cgroup}/cgroup.procs" && exec "$@"', "sh"]
        with (self.directory / "console.log").open("ab") as console:
            process = subprocess.Popen(
                [*enter, *command], stdin=subprocess.DEVNULL, stdout=console, stderr=console, env=environment,
                start_new_session=True,
            )  # fmt: skip
        (self.directory / "pid").write_text(str(process.pid), encoding="utf-8")
        self.process = process

    def wait(self) -> None:
        """Blocks until systemd has started everything; a unit that failed is no obstacle."""
        end = time.monotonic() + BOOT_TIMEOUT_S
        while time.monotonic() < end and self.process.poll() is None:
            state = self.run("systemctl is-system-running --wait", check=False)
            if state.strip() in ("running", "degraded"):
                return
            time.sleep(0.2)
        console = (self.directory / "console.log").read_text(encoding="utf-8", errors="replace")
        raise TestBedError(f"{self.name} ended, or did not come up within {BOOT_TIMEOUT_S} s:\n{console[-2000:]}")

    def command(self, command: str) -> list[str]:
        lan = ["ip", "netns", "exec", self.bed.lan]
        return [*lan, "ssh", "-i", str(IMAGE / "key"), *SSH_OPTIONS, f"root@{self.address}", command]

    def run(self, command: str, check: bool = True) -> str:
        """Runs a shell command on the host; returns what it printed."""
        return run(*self.command(command), check=check)

    def fails(self, command: str) -> str:
        """Runs a command that must fail; returns what it printed."""
        ran = subprocess.run(self.command(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)  # fmt: skip
        if ran.returncode == 0:
            raise TestBedError(f"{self.name}: {command}: succeeded, and should not: {ran.stdout.strip()}")
        return ran.stdout

    def stop(self) -> None:
        """Shuts the host down, as `poweroff` does; it can be booted again."""
        pid_file = self.directory / "pid"
        if not pid_file.exists():
            return
        pid = int(pid_file.read_text(encoding="utf-8"))
        for kind, wait_s in ((signal.SIGTERM, STOP_TIMEOUT_S), (signal.SIGKILL, 5)):
            if not self.is_ours(pid):
                break
            os.kill(pid, kind)
            end = time.monotonic() + wait_s
            while self.is_ours(pid) and time.monotonic() < end:
                if getattr(self, "process", None):
                    self.process.poll()
                time.sleep(0.05)
        pid_file.unlink()

    def cut_off(self, is_cut: bool = True) -> None:
        """Takes the host's port from the bridge, or gives it back; the host itself notices nothing but silence."""
        port = f"p{self.number}"
        run("ip", "-n", self.bed.lan, "link", "set", port, *(["nomaster"] if is_cut else ["master", "br0"]))

    def is_ours(self, pid: int) -> bool:
        """Whether a process is this host's, and not another one that got its number."""
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
        except OSError:
            return False
        return str(self.root).encode() in words and state != "Z"

    def end_processes(self) -> None:
        """Ends what is left of the host: its processes end only some time after its first one, mounts of its own last."""
        (self.cgroup / "cgroup.kill").write_text("1", encoding="ascii")
        end = time.monotonic() + STOP_TIMEOUT_S
        while "populated 1" in (self.cgroup / "cgroup.events").read_text(encoding="ascii"):
            if time.monotonic() > end:
                raise TestBedError(f"{self.name}: processes below {self.cgroup} do not end")
            time.sleep(0.05)

    def remove(self) -> None:
        self.stop()
        run("umount", "--lazy", self.root, check=False)
        for loop in self.loops():
            run("losetup", "--detach", loop, check=False)
        run("ip", "netns", "delete", self.namespace, check=False)
        if self.cgroup.is_dir():
            self.end_processes()
            for inner in sorted((path for path in self.cgroup.rglob("*") if path.is_dir()), reverse=True):
                inner.rmdir()
            self.cgroup.rmdir()
        shutil.rmtree(self.directory, ignore_errors=True)


class TestBed:
    """Some hosts on one bridge; a context that removes them in the end."""

    def __init__(self, directory: Path, shared: dict[Path, str] | None = None):
        self.directory = directory
        # Two test beds of one machine differ by their directories.
        self.prefix = f"tb{abs(hash_of(directory)) % 10**8}"
        self.lan = f"{self.prefix}-lan"
        # Directories of the machine that hosts see read-only.
        self.shared = shared or {}
        self.hosts: list[Host] = []

    def __enter__(self) -> "TestBed":
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self, count: int, disk_mib: int = 512) -> None:
        if os.geteuid() != 0:
            raise TestBedError("booting hosts needs root")
        make_image()
        self.down()
        self.directory.mkdir(parents=True)
        run("ip", "netns", "add", self.lan)
        run("ip", "-n", self.lan, "link", "set", "lo", "up")
        run("ip", "-n", self.lan, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", self.lan, "address", "add", f"{NETWORK}.1/24", "dev", "br0")
        run("ip", "-n", self.lan, "link", "set", "br0", "up")
        self.hosts = [Host(self, number) for number in range(1, count + 1)]
        for host in self.hosts:
            host.make(disk_mib, [(other.name, other.address) for other in self.hosts])
            host.boot()
        for host in self.hosts:
            host.wait()

    def down(self) -> None:
        found = sorted(self.directory.glob("h[0-9]*")) if self.directory.exists() else []
        known = {host.name: host for host in self.hosts}
        hosts = [known.get(path.name) or Host(self, int(path.name[1:])) for path in found]
        for host in hosts:
            host.remove()
        run("ip", "netns", "delete", self.lan, check=False)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.hosts = []

    def host_variables(self, host: Host) -> dict[str, str]:
        """How Ansible reaches a host."""
        return {
            "ansible_host": host.address,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(IMAGE / "key"),
            "ansible_ssh_common_args": " ".join(SSH_OPTIONS),
            "ansible_python_interpreter": "/usr/bin/python3",
        }


def hash_of(path: Path) -> int:
    """A number that is the same in every process, as `hash` is not."""
    number = 0
    for byte in str(path).encode():
        number = (number * 31 + byte) % (1 << 32)
    return number


def main() -> int:
    bed = TestBed(Path(os.environ.get("TESTBED_DIR", "/var/tmp/terrace-testbed")))
    match sys.argv[1:]:
        case ["up", count]:
            bed.up(int(count))
            for host in bed.hosts:
                print(host.name, " ".join(f"{key}='{value}'" for key, value in bed.host_variables(host).items()))
        case ["exec", name, *command]:
            return subprocess.run(Host(bed, int(name[1:])).command(" ".join(command))).returncode
        case ["down"]:
            bed.down()
        case _:
            sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
