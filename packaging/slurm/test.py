#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs Slurm on this machine, as root, and jobs that have a tier of their own.

test.py TERRACE        the command
"""

import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TIME_MAX_S = 60.0
USER = "nobody"
MIB = 1 << 20


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Slurm:
    """munged, slurmctld and slurmd with one node, and all state below a directory."""

    def __init__(self, top: Path, terrace: Path):
        self.top, self.processes = top, []
        self.terrace = Path(shutil.copy(terrace, top / "terrace"))
        self.host = socket.gethostname().split(".")[0]
        self.shared, self.fast = top / "scratch", top / "nvme"
        for name in ("scratch", "nvme", "run", "state", "spool", "munge", "log"):
            (top / name).mkdir()
        top.chmod(0o755)
        uid = pwd.getpwnam(USER).pw_uid
        (self.shared / USER).mkdir()
        os.chown(self.shared / USER, uid, -1)
        (top / "terrace.conf").write_text(
            f"fast_root={self.fast}\nstore={self.shared}/%u/terrace\nmount_root={top}/run\n"
            f"unit=10MB\nfast_latency=80us\nmount_options=\nclose_seconds=30\nterrace={self.terrace}\n"
        )
        for name in ("prolog", "epilog", "task-prolog"):
            script = top / name
            script.write_text(
                f"#!/bin/sh\nexport TERRACE_SLURM_CONF={top}/terrace.conf\n"
                f"export SLURM_CONF={top}/slurm.conf\nexec {HERE / name} 2>>{top}/log/{name}\n"
            )
            script.chmod(0o755)
            (top / "log" / name).touch()
            (top / "log" / name).chmod(0o666)
        control, node = free_ports(2)
        (top / "gres.conf").write_text("Name=terrace Count=8\n")
        (top / "cgroup.conf").write_text("CgroupAutomount=no\n")
        (top / "slurm.conf").write_text(
            f"ClusterName=test\nSlurmctldHost={self.host}(127.0.0.1)\nSlurmctldPort={control}\n"
            f"SlurmdPort={node}\nSlurmUser=root\nAuthType=auth/munge\n"
            f"AuthInfo=socket={top}/munge/socket\nCryptoType=crypto/munge\n"
            f"StateSaveLocation={top}/state\nSlurmdSpoolDir={top}/spool\n"
            f"SlurmctldPidFile={top}/state/control.pid\nSlurmdPidFile={top}/state/node.pid\n"
            f"SlurmctldLogFile={top}/log/control\nSlurmdLogFile={top}/log/node\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n"
            "SelectType=select/cons_tres\nReturnToService=2\nSlurmdTimeout=30\nMinJobAge=300\n"
            f"GresTypes=terrace\nProlog={top}/prolog\nEpilog={top}/epilog\nTaskProlog={top}/task-prolog\n"
            "PrologFlags=Alloc\n"
            f"NodeName={self.host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} Gres=terrace:8 State=UNKNOWN\n"
            f"PartitionName=all Nodes={self.host} Default=YES State=UP\n"
        )
        self.environment = {**os.environ, "SLURM_CONF": str(top / "slurm.conf")}

    def start(self) -> None:
        key = self.top / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        (self.top / "munge").chmod(0o711)
        munge = self.top / "munge"
        self.run_daemon(
            ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}/socket"]
            + [f"--pid-file={munge}/pid", f"--seed-file={munge}/seed", f"--log-file={munge}/log"]
        )
        wait_until("munged listens", (munge / "socket").exists)
        self.run_daemon(["slurmctld", "-D"])
        self.run_daemon(["slurmd", "-D", "-N", self.host])
        wait_until("the node is idle", lambda: self.node_state() == "idle")

    def run_daemon(self, command: list[str]) -> None:
        log = (self.top / "log" / f"{command[0]}.out").open("ab")
        self.processes.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True))

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
            process.wait(TIME_MAX_S)

    def node_state(self) -> str:
        return self.run(["sinfo", "-h", "-o", "%T"]).strip()

    def run(self, command: list[str]) -> str:
        ended = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=TIME_MAX_S)
        if ended.returncode != 0:
            raise AssertionError(f"{command}: {ended.stdout}{ended.stderr}{self.logs()}")
        return ended.stdout

    def job(self, script: str, *options: str) -> tuple[int, str]:
        """Runs a job to its end, the epilog too; its exit code and what it printed."""
        output = self.shared / USER / "output"
        output.unlink(missing_ok=True)
        command = ["runuser", "-u", USER, "--", "env", f"SLURM_CONF={self.top}/slurm.conf"]
        command += ["sbatch", "--parsable", "--wait", f"--output={output}", "--chdir=/tmp", *options]
        ended = subprocess.run(
            command,
            env=self.environment,
            input=f"#!/bin/bash\n{script}",
            capture_output=True,
            text=True,
            timeout=TIME_MAX_S,
        )
        wait_until("the job's epilog has ended", lambda: self.node_state() in ("idle", "drained"))
        text = output.read_text() if output.exists() else ""
        return ended.returncode, text + ended.stderr

    def logs(self) -> str:
        return "".join(f"\n--- {log.name}\n{log.read_text()[-3000:]}" for log in (self.top / "log").iterdir())


def wait_until(what: str, condition) -> None:
    end = time.monotonic() + TIME_MAX_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {TIME_MAX_S:.0f} s")
        time.sleep(0.1)


def check(slurm: Slurm) -> None:
    terrace = slurm.terrace
    store = slurm.shared / USER / "terrace"

    def ask(*words: str) -> str:
        return slurm.run([str(terrace), "--store", str(store), *words])

    def expect(what: bool, text: str) -> None:
        if not what:
            raise AssertionError(text + slurm.logs())

    # The job's files are on the job's tier, which is the first.
    script = (
        'set -eu\nhead -c 20000000 /dev/urandom >"$TERRACE_JOB/data"\nsha256sum <"$TERRACE_JOB/data"\n'
        'getfattr --only-values -n user.terrace.tier "$TERRACE_JOB/data" 2>/dev/null; echo\n'
        f'echo "$TERRACE_TIER"; {terrace} tiers\n'
    )
    code, text = slurm.job(script, "--gres=terrace:3")
    expect(code == 0, f"the job ended with {code}: {text}")
    digest, on, tier, _, *rows = text.splitlines()
    expect(on == tier and rows[0].split()[0] == tier, text)
    expect("30.0 MB" in rows[0], text)
    # After it they are on the shared tier, and the job's is gone.
    tiers = ask("tiers").splitlines()
    expect(len(tiers) == 2 and tiers[1].split()[0] == "shared", f"{tiers}")
    expect(not list(slurm.fast.iterdir()), "the fast device is empty")
    # The next job finds them.
    code, text = slurm.job('sha256sum <"$TERRACE_JOB/data"\n', "--gres=terrace:1")
    expect((code, text.strip()) == (0, digest), f"the next job ended with {code}: {text}")
    # A job without one has none.
    code, text = slurm.job('echo "[${TERRACE_JOB:-}]"\n')
    expect((code, text.strip()) == (0, "[]"), text)
    # One that fails loses nothing, either.
    code, _ = slurm.job('echo kept >"$TERRACE_JOB/kept"; kill -9 $$\n', "--gres=terrace:2")
    expect(code != 0, "it killed itself")
    code, text = slurm.job('cat "$TERRACE_JOB/kept"\n', "--gres=terrace:1")
    expect((code, text.strip()) == (0, "kept"), text)
    # What is wrong with the user's store is told to the user, and the node stays in use.
    away = store.with_name("away")
    store.rename(away)
    store.mkdir()
    (store / "terrace.toml").write_text("[store]\nnonsense = 1\n")
    os.chown(store, pwd.getpwnam(USER).pw_uid, -1)
    code, text = slurm.job("echo not reached\n", "--gres=terrace:1")
    expect(code != 0 and "nonsense" in text and "not reached" not in text, f"{code}: {text}")
    expect(slurm.node_state() == "idle", "the node is in use")
    shutil.rmtree(store)
    away.rename(store)
    # Data that cannot leave the job's tier stay there, and the node is drained.
    shared = store / "shared"
    code, text = slurm.job(
        f'set -eu\nhead -c 5000000 /dev/zero >"$TERRACE_JOB/stuck"\n{terrace} tiers drain shared\n',
        "--gres=terrace:1",
    )
    expect(slurm.node_state() == "drained", f"{code}: {text}")
    left = list(slurm.fast.iterdir())
    expect(len(left) == 1 and shared.exists(), f"{left}")
    print("slurm: jobs have a tier for their lifetime, and lose nothing")


def let_users_mount(top: Path) -> None:
    """Has all users open /dev/fuse in this process's mount namespace, as on an ordinary host."""
    device = top / "fuse"
    os.mknod(device, 0o666 | stat.S_IFCHR, os.stat("/dev/fuse").st_rdev)
    device.chmod(0o666)
    subprocess.run(["mount", "--bind", str(device), "/dev/fuse"], check=True)


def main() -> None:
    if os.environ.pop("TERRACE_OWN_MOUNTS", None) is None:
        os.environ["TERRACE_OWN_MOUNTS"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", *sys.argv])
    terrace = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="terrace-slurm-") as top:
        let_users_mount(Path(top))
        slurm = Slurm(Path(top), terrace)
        try:
            slurm.start()
            check(slurm)
        finally:
            slurm.stop()
            for mount in sorted((Path(top) / "run").iterdir()):
                subprocess.run(["umount", "-l", str(mount)], check=False, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
