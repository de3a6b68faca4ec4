#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes the packages of Terrace, .deb and .rpm, and a local apt repository of them.

    packaging/make-packages.py --binaries DIR --output DIR [--version VERSION]

`packaging/install.sh` fills a tree as `make install` does, `PACKAGES` says which of its files each package has, and
cargo-deb and cargo-generate-rpm write the packages from a manifest that is made for each.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
SCRIPTLETS = ROOT / "packaging" / "scriptlets"
MAINTAINER = os.environ.get("TERRACE_MAINTAINER", "The Terrace developers <terrace@example.org>")
RELEASE = "1"
# The oldest of the C library that the release binaries run with; tools/check-glibc.py looks at their symbols.
GLIBC_MIN = "2.28"


@dataclass
class Package:
    """What one package holds and needs, of both kinds."""

    summary: str
    description: str
    # Files and directories of the tree, below /usr.
    paths: list[str]
    deb_depends: str
    rpm_requires: dict[str, str]
    deb_recommends: str = ""
    # Symbolic links below /usr, and where they lead.
    links: dict[str, str] = field(default_factory=dict)


PACKAGES = {
    "terrace": Package(
        summary="One store over fast and slow storage",
        description="Terrace keeps objects and files on fast and slow storage. A policy, which can be replaced, decides "
        "what lives where. This package has the command, its manual pages and completions, the header for "
        "policies in C, alert rules and dashboards for Prometheus and Grafana, and scripts for Slurm.",
        paths=[
            "bin/terrace",
            "include/terrace_policy.h",
            "share/man/man1",
            "share/bash-completion/completions/terrace",
            "share/zsh/vendor-completions/_terrace",
            "share/fish/vendor_completions.d/terrace.fish",
            "share/doc/terrace/README.md",
            "share/terrace/monitoring",
            "share/terrace/slurm",
        ],
        deb_depends=f"libc6 (>= {GLIBC_MIN}), libgcc-s1",
        rpm_requires={"glibc": f">= {GLIBC_MIN}", "libgcc": "*"},
    ),
    "terrace-server": Package(
        summary="Units that serve Terrace stores to other machines",
        description="The unit terrace-server@.service, which serves a store that a file in /etc/terrace/server names, "
        "and the user it runs as.",
        paths=[
            "lib/systemd/system/terrace-server@.service",
            "lib/sysusers.d/terrace.conf",
            "lib/tmpfiles.d/terrace.conf",
        ],
        deb_depends="terrace (= {version}), systemd (>= 239)",
        rpm_requires={"terrace": "= {version}", "systemd": ">= 239"},
    ),
    "terrace-mount": Package(
        summary="Units and the helper of mount(8) for Terrace file systems",
        description="The unit terrace-mount@.service and /sbin/mount.fuse.terrace, with which stores are mounted at boot "
        "by a unit or by /etc/fstab.",
        paths=["lib/systemd/system/terrace-mount@.service"],
        links={"sbin/mount.fuse.terrace": "../bin/terrace"},
        deb_depends="terrace (= {version}), systemd (>= 239)",
        deb_recommends="fuse3",
        rpm_requires={"terrace": "= {version}", "systemd": ">= 239"},
    ),
    "terrace-lab": Package(
        summary="Performance and energy of any file system, in one record",
        description="The command terrace-lab, which runs experiments on file systems, measures them and the energy they "
        "take, and writes reports, with the load generator terrace-gen.",
        paths=["bin/terrace-gen", "bin/partdiff", "bin/terrace-lab", "lib/terrace-lab"],
        deb_depends=f"libc6 (>= {GLIBC_MIN}), libgcc-s1, python3 (>= 3.11), python3-jinja2, python3-matplotlib, "
        "python3-numpy, python3-psutil, python3-rich, python3-scipy, python3-serial, python3-tomli-w",
        # RHEL 9 has Python 3.11 beside its own; the Python packages come from PyPI there (docs/how-to/deploy.md).
        rpm_requires={"glibc": f">= {GLIBC_MIN}", "libgcc": "*"},
        deb_recommends="terrace",
    ),
}


def run(*command: str | Path, **keywords) -> None:
    subprocess.run([str(word) for word in command], check=True, **keywords)


def workspace_version() -> str:
    with (ROOT / "Cargo.toml").open("rb") as file:
        return tomllib.load(file)["workspace"]["package"]["version"]


def toml_table(table: dict) -> str:
    """TOML of a flat table; strings, lists and inline tables are written as in JSON where both agree."""

    def value(item) -> str:
        if isinstance(item, dict):
            return "{ " + ", ".join(f"{json.dumps(key)} = {value(entry)}" for key, entry in item.items()) + " }"
        if isinstance(item, list):
            return "[\n" + "".join(f"    {value(entry)},\n" for entry in item) + "]"
        return json.dumps(item)

    return "".join(f"{key} = {value(item)}\n" for key, item in table.items())


def files_of(package: Package, stage: Path) -> list[Path]:
    """Paths below /usr of all files of a package."""
    found: list[Path] = []
    for name in package.paths:
        path = stage / "usr" / name
        if not path.exists():
            sys.exit(f"make-packages: {path} is missing: packaging/install.sh did not install it")
        inside = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        found += [file.relative_to(stage / "usr") for file in inside]
    return found


def write_manifest(name: str, package: Package, version: str, work: Path) -> None:
    stage = work / "stage"
    assets, rpm_assets = [], []
    for file in files_of(package, stage):
        mode = "755" if os.access(stage / "usr" / file, os.X_OK) else "644"
        assets.append({"source": f"stage/usr/{file}", "dest": f"/usr/{file}", "mode": mode})
    rpm_assets = list(assets)
    for link in package.links:
        # cargo-generate-rpm has no links: the scriptlet makes it.
        assets.append({"dest": f"/usr/{link}", "link_name": package.links[link]})
    deb = {
        "name": name,
        "maintainer": MAINTAINER,
        "copyright": "The Terrace developers",
        "license-file": ["copyright", "0"],
        "changelog": "changelog",
        "section": "admin",
        "depends": package.deb_depends.format(version=f"{version}-{RELEASE}"),
        "extended-description": package.description,
        "assets": assets,
    }
    if package.deb_recommends:
        deb["recommends"] = package.deb_recommends
    if (SCRIPTLETS / name / "deb").is_dir():
        deb["maintainer-scripts"] = str(SCRIPTLETS / name / "deb")
    rpm = {
        "name": name,
        "summary": package.summary,
        "release": RELEASE,
        "auto-req": "no",
        "requires": {key: text.format(version=version) for key, text in package.rpm_requires.items()},
        "assets": rpm_assets,
    }
    for kind in ("post_install", "pre_uninstall", "post_uninstall"):
        script = SCRIPTLETS / name / "rpm" / kind
        if script.exists():
            rpm[f"{kind}_script"] = script.read_text(encoding="utf-8")
    head = {
        "name": "terrace-package",
        "version": version,
        "edition": "2021",
        "license": "Apache-2.0 OR MIT",
        "description": package.summary,
    }
    texts = [
        "[package]\n" + toml_table(head),
        "[workspace]\n",
        '[lib]\npath = "lib.rs"\n',
        "[package.metadata.deb]\n" + toml_table(deb),
        "[package.metadata.generate-rpm]\n" + toml_table(rpm),
    ]
    (work / "Cargo.toml").write_text("\n".join(texts), encoding="utf-8")


def write_changelog(name: str, version: str, work: Path) -> None:
    text = (
        f"{name} ({version}-{RELEASE}) unstable; urgency=medium\n\n"
        f"  * Version {version}; what changed is in changes/ of the sources.\n\n"
        f" -- {MAINTAINER}  Thu, 01 Jan 2026 00:00:00 +0000\n"
    )
    (work / "changelog").write_text(text, encoding="utf-8")


def make_repository(output: Path) -> None:
    """Makes the directory an apt repository: `deb [trusted=yes] file:DIR ./`."""
    with (output / "Packages").open("w", encoding="utf-8") as index:
        run("dpkg-scanpackages", "--multiversion", ".", cwd=output, stdout=index, stderr=subprocess.DEVNULL)


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes .deb and .rpm packages.")
    parser.add_argument("--binaries", type=Path, required=True, help="where terrace, terrace-gen and partdiff are")
    parser.add_argument("--output", type=Path, required=True, help="where the packages go; the rest of it stays")
    parser.add_argument("--version", default=workspace_version())
    parser.add_argument("--kind", choices=["deb", "rpm"], action="append", help="default: both")
    parser.add_argument("--fast", action="store_true", help="compress little, for tests")
    options = parser.parse_args()
    kinds = options.kind or ["deb", "rpm"]
    output = options.output.resolve()
    work = output / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    environment = os.environ | {"PREFIX": "/usr", "DESTDIR": str(work / "stage"), "STRIP": os.environ.get("STRIP", "strip")}
    run(ROOT / "packaging" / "install.sh", options.binaries, env=environment)
    shutil.copy(ROOT / "packaging" / "copyright", work)
    (work / "lib.rs").touch()
    for name, package in PACKAGES.items():
        write_changelog(name, options.version, work)
        write_manifest(name, package, options.version, work)
        if "deb" in kinds:
            fast = ["--fast"] if options.fast else []
            run("cargo-deb", "deb", "--no-build", "--no-strip", "--quiet", "--deb-revision", RELEASE, *fast,
                "--output", f"{output}/", "--manifest-path", work / "Cargo.toml", cwd=work)  # fmt: skip
        if "rpm" in kinds:
            payload = ["--payload-compress", "none"] if options.fast else []
            run("cargo-generate-rpm", "generate-rpm", "--auto-req", "disabled", *payload,
                "--output", f"{output}/", cwd=work)  # fmt: skip
    shutil.rmtree(work)
    if "deb" in kinds:
        make_repository(output)
    for path in sorted(output.glob("*.deb")) + sorted(output.glob("*.rpm")):
        print(f"{path.name} {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
