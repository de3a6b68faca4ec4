# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Presets of systems that are not here, against programs that record their words and answer as the
real ones do."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from terrace_lab import targets
from terrace_lab.errors import LabError
from terrace_lab.hosts import AgentHost
from terrace_lab.settings import Settings
from terrace_lab.targets.base import Amplification, Target

# What the clients print where they cannot mount, as their documentation and issues have it.
FAILURES = {
    "lustre": "mount.lustre: mount 10.0.0.7:/lustre at {mount} failed: Input/output error\n"
    "Is the MGS running?",
    "beegfs": "mount: {mount}: unknown filesystem type 'beegfs'.",
    "orangefs": "mount: {mount}: unknown filesystem type 'pvfs2'.",
}
WORDS = {
    "lustre": "-t lustre 10.0.0.7:/lustre {mount}",
    "beegfs": "-t beegfs -o cfgFile=/etc/beegfs/beegfs-client.conf,sysMgmtdHost=10.0.0.7 "
    "beegfs_lab {mount}",
    "orangefs": "-t pvfs2 tcp://10.0.0.7:3334/orangefs {mount}",
}
MOUNT = """#!/bin/sh
echo "$@" >>{root}/words
for last; do :; done
[ -e {root}/fails ] && {{ cat {root}/fails >&2; exit 32; }}
exec {real} -t tmpfs none "$last"
"""
FUSE = """#!/bin/sh
echo "$JULEA_CONFIG $@" >>{root}/words
for last; do :; done
exec {real} -t tmpfs none "$last"
"""


def make(kind: str, root: Path, **settings: Any) -> Target:
    table = {"kind": kind, "state": str(root / "state"), **settings}
    return targets.create("t", Settings("targets.t", table))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    real = subprocess.check_output(["which", "mount"], text=True).strip()
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    for name, text in (("mount", MOUNT), ("julea-fuse", FUSE), ("fuse-nfs", FUSE)):
        file = bin_directory / name
        file.write_text(text.format(root=tmp_path, real=real))
        file.chmod(0o755)
    for name in ("mount.lustre", "beegfs-ctl", "pvfs2-client"):
        file = bin_directory / name
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_directory}:{os.environ['PATH']}")
    host = AgentHost("here")
    host.connect()
    yield host
    host.close()


@pytest.mark.parametrize("kind", WORDS)
def test_a_client_is_mounted_by_its_own_words(host: AgentHost, tmp_path: Path, kind: str) -> None:
    target = make(kind, tmp_path, address="10.0.0.7")
    mount = tmp_path / "state" / "mnt"
    try:
        target.setup([host], {})
        assert os.path.ismount(mount)
        words = (tmp_path / "words").read_text().splitlines()
        assert words == [WORDS[kind].format(mount=mount)]
    finally:
        target.teardown([host])
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("kind", FAILURES)
def test_what_a_client_says_where_it_cannot_mount_is_told(
    host: AgentHost, tmp_path: Path, kind: str
) -> None:
    mount = tmp_path / "state" / "mnt"
    said = FAILURES[kind].format(mount=mount)
    (tmp_path / "fails").write_text(said)
    with pytest.raises(LabError) as error:
        make(kind, tmp_path, address="10.0.0.7").setup([host], {})
    assert said in str(error.value)
    assert not (tmp_path / "state").exists()


def test_user_space_clients_are_started_with_what_they_need(
    host: AgentHost, tmp_path: Path
) -> None:
    for kind, address, words in (
        ("julea", "/etc/julea", "/etc/julea {mount}"),
        ("nfs-fuse", "10.0.0.7", "-n nfs://10.0.0.7/lab?version=4 -m {mount}"),
    ):
        target = make(kind, tmp_path, address=address)
        try:
            target.setup([host], {})
            said = (tmp_path / "words").read_text().splitlines()[-1].strip()
            assert said == words.format(mount=tmp_path / "state" / "mnt")
        finally:
            target.teardown([host])


def test_parity_and_copies_are_in_the_amplification(tmp_path: Path) -> None:
    erasure = make("cephfs", tmp_path, data_pool="erasure", ec_data=2, ec_parity=1)
    assert erasure.amplification() == Amplification(1.5, 1.5)
    assert make("cephfs", tmp_path, copies=3).amplification() == Amplification(3, 3)
    disperse = make("glusterfs", tmp_path, layout="disperse", bricks=6, redundancy=2)
    assert disperse.amplification() == Amplification(1.5, 1.5)
    for kind, name in (("cephfs", "pg_num"), ("moosefs", "trash_seconds")):
        assert name in {one.name for one in make(kind, tmp_path).tunables()}


def test_all_of_the_bricks_cannot_be_parity(tmp_path: Path) -> None:
    assert make("glusterfs", tmp_path, layout="disperse").amplification() == Amplification(2, 2)
    with pytest.raises(LabError, match=r"redundancy: must leave more bricks for data"):
        make("glusterfs", tmp_path, layout="disperse", bricks=2, redundancy=2)
