# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The lab removes what it marked, and nothing else, whatever lies in its way."""

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from terrace_lab.errors import LabError
from terrace_lab.hosts import AgentHost
from terrace_lab.targets import marked_remote
from terrace_lab.targets.marked import MARKER, clear_marked, make_below, make_marked, remove_marked


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file that is not the lab's."""
    file = tmp_path / "precious" / "file"
    file.parent.mkdir()
    file.write_text("mine")
    return file


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    path = tmp_path / "lab"
    marked_remote.mark(str(path), "run-1")
    return path


def test_all_below_is_removed_and_links_are_not_followed(
    host: AgentHost, marked: Path, outside: Path
) -> None:
    (marked / "a" / "b").mkdir(parents=True)
    (marked / "a" / "b" / "file").write_text("x")
    (marked / "link").symlink_to(outside.parent, target_is_directory=True)
    (marked / "a" / "file").symlink_to(outside)
    os.link(outside, marked / "hard")
    os.mkfifo(marked / "fifo")
    clear_marked(host, PurePosixPath(marked), "run-1")
    assert os.listdir(marked) == [MARKER]
    assert outside.read_text() == "mine"
    remove_marked(host, PurePosixPath(marked), "run-1")
    assert not marked.exists()
    remove_marked(host, PurePosixPath(marked), "run-1")


def test_marking_twice_is_marking_once(host: AgentHost, marked: Path) -> None:
    (marked / "kept").write_text("x")
    make_marked(host, PurePosixPath(marked), "run-1")
    assert (marked / "kept").exists()
    assert json.loads((marked / MARKER).read_text()) == {"run_id": "run-1"}


def test_a_directory_with_content_is_not_marked(host: AgentHost, outside: Path) -> None:
    with pytest.raises(LabError) as error:
        make_marked(host, PurePosixPath(outside.parent), "run-1")
    assert str(error.value) == (
        "cannot mark a directory: it is not empty and carries no marker entries=1 "
        f"path={outside.parent} host=here"
    )


Spoil = Callable[[Path], None]


def _no_marker(path: Path) -> None:
    (path / MARKER).unlink()


def _other_run(path: Path) -> None:
    (path / MARKER).write_text('{"run_id": "run-2"}')


def _other_file(path: Path) -> None:
    (path / MARKER).write_text('["run-1"]')


def _linked_marker(path: Path) -> None:
    (path / MARKER).rename(path.parent / "real")
    (path / MARKER).symlink_to(path.parent / "real")


def _pipe(path: Path) -> None:
    (path / MARKER).unlink()
    os.mkfifo(path / MARKER)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_no_marker, "it carries no marker of the lab"),
        (_other_run, "it belongs to another run run_id=run-2"),
        (_other_file, "its marker is not one of the lab"),
        (_linked_marker, "its marker cannot be read: Too many levels of symbolic links"),
        (_pipe, "its marker is no plain file"),
    ],
)
def test_without_its_own_marker_nothing_is_removed(marked: Path, spoil: Spoil, reason: str) -> None:
    (marked / "file").write_text("x")
    spoil(marked)
    # Removing begins with clearing.
    with pytest.raises(marked_remote.Refused, match=f"^{reason}$"):
        marked_remote.remove(str(marked), "run-1")
    assert (marked / "file").exists()


def test_a_path_through_a_link_is_refused(marked: Path, tmp_path: Path) -> None:
    (marked / "file").write_text("x")
    link = tmp_path / "link"
    link.symlink_to(marked.parent)
    for path in (str(link / "lab"), f"{marked}/../lab", "/", "lab"):
        with pytest.raises(marked_remote.Refused, match="^it (is reached|must be)"):
            marked_remote.clear(path, "run-1")
    assert (marked / "file").exists()


@contextlib.contextmanager
def _mounted(path: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "lab-test", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def test_what_is_mounted_below_is_not_emptied(host: AgentHost, marked: Path) -> None:
    point = marked / "Gerät with blank"
    point.mkdir()
    (marked / "file").write_text("x")
    with _mounted(point):
        (point / "file").write_text("x")
        with pytest.raises(LabError, match=f"another file system is mounted below mount={point}"):
            clear_marked(host, PurePosixPath(marked), "run-1")
        assert (point / "file").exists()
    # Nothing at all, not only nothing there.
    assert (marked / "file").exists()


def test_the_root_of_a_mount_can_be_the_directory(host: AgentHost, tmp_path: Path) -> None:
    with _mounted(tmp_path):
        make_marked(host, PurePosixPath(tmp_path), "run-1")
        (tmp_path / "file").write_text("x")
        clear_marked(host, PurePosixPath(tmp_path), "run-1")
        assert os.listdir(tmp_path) == [MARKER]


def test_nothing_is_made_where_the_mount_with_the_marker_is_gone(
    host: AgentHost, tmp_path: Path
) -> None:
    with _mounted(tmp_path):
        make_marked(host, PurePosixPath(tmp_path / "lab"), "run-1")
        own, shared = make_below(host, PurePosixPath(tmp_path / "lab"), "client-0", "shared")
        assert Path(own).is_dir()
        assert Path(shared).is_dir()
    with pytest.raises(LabError, match="its marker is gone path="):
        make_below(host, PurePosixPath(tmp_path / "lab"), "client-0")
    assert os.listdir(tmp_path) == []


def test_a_parent_that_is_not_there_is_named(host: AgentHost, tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"No such file or directory name=.*absent/lab"):
        make_marked(host, PurePosixPath(tmp_path / "absent" / "lab"), "run-1")
