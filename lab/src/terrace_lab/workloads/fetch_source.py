# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Finds the tarball of a source on one host, or fetches it from Debian. Runs there alone.

Prints the path. Nothing is installed, and apt's own lists stay as they are.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import tempfile

# `apt-get source` needs lists of sources, which few machines have set up.
_LISTS = "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)"


class NotFound(Exception):
    """Why there is no tarball."""


def find(source: str, cache: str) -> str:
    """The tarball of a path, of `linux-source-…`, or of a Debian source package."""
    if source.startswith("/"):
        if not os.path.isfile(source):
            raise NotFound(f"there is no file {source}")
        return source
    kept = sorted(glob.glob(os.path.join(cache, glob.escape(source) + ".tar.*")))
    kept += sorted(glob.glob(f"/usr/src/{glob.escape(source)}.tar.*"))
    if kept:
        return kept[0]
    if shutil.which("apt-get") is None:
        raise NotFound(f"there is no apt-get to fetch {source} with")
    os.makedirs(cache, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as directory:
        if source.startswith("linux-source-"):
            found = _from_package(source, directory)
        else:
            found = _from_sources(source, directory)
        name = os.path.basename(found)
        target = os.path.join(cache, source + name[name.index(".tar.") :])
        os.replace(found, target)
    return target


def _from_package(source: str, directory: str) -> str:
    """The kernel's source is in a package like any other."""
    _run(directory, "apt-get", "download", source)
    packages = glob.glob(os.path.join(directory, "*.deb"))
    if not packages:
        raise NotFound(f"apt-get download brought no package of {source}")
    _run(directory, "dpkg-deb", "-x", packages[0], "tree")
    return _only(directory, "tree/usr/src/*.tar.*", source)


def _from_sources(source: str, directory: str) -> str:
    lists = os.path.join(directory, "sources.list")
    os.mkdir(os.path.join(directory, "state"))
    wanted = ("Identifier: Packages", "Component: main")
    lines = _run(directory, "apt-get", "indextargets", "--format", _LISTS, *wanted)
    with open(lists, "w", encoding="utf-8") as file:
        file.write("".join(sorted({line + "\n" for line in lines.splitlines()})))
    options = (
        *("-qq", "-o", f"Dir::Etc::SourceList={lists}"),
        *("-o", "Dir::Etc::SourceParts=/dev/null"),
        *("-o", f"Dir::State::Lists={directory}/state", "-o", "APT::Sandbox::User=root"),
    )
    _run(directory, "apt-get", *options, "update")
    _run(directory, "apt-get", *options, "source", "--tar-only", "--download-only", source)
    return _only(directory, "*.orig.tar.*", source)


def _only(directory: str, pattern: str, source: str) -> str:
    """The signature of a tarball may lie beside it."""
    found = glob.glob(os.path.join(directory, pattern))
    found = sorted(one for one in found if not one.endswith(".asc"))
    if not found:
        raise NotFound(f"what was fetched of {source} has no tarball")
    return found[0]


def _run(directory: str, *argv: str) -> str:
    done = subprocess.run(argv, cwd=directory, capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-400:]
        raise NotFound(f"{argv[0]} failed with {done.returncode}: {said}")
    return done.stdout


def main(source: str, cache: str) -> int:
    try:
        print(find(source, cache))
    except (NotFound, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
