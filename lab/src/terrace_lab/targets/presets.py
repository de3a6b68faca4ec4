# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Targets by name: what their scripts are told, what may be tuned, what they move inside.

One entry a preset. docs/reference/lab-targets.md has the options, and which of them were run where.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from terrace_lab.settings import Settings
from terrace_lab.targets.base import Amplification, Tunable
from terrace_lab.targets.system import Parameters, Plan, Step, variable

STATE = "/var/tmp/terrace-lab"

Value = str | int


@dataclass(frozen=True, slots=True)
class Preset:
    """A system that the lab's own scripts bring up and down."""

    script: str
    """`NAME` of `NAME-up.sh` and `NAME-down.sh`."""
    programs: Mapping[str, str]
    """Needed on each client, with their Debian packages; empty where Debian has none."""
    own_programs: Mapping[str, str] = field(default_factory=dict)
    """Needed as well where no `address` names servers, and the script starts its own."""
    options: Mapping[str, Value] = field(default_factory=dict)
    """With their defaults; an experiment may set them. Text, whole numbers, and bytes."""
    sizes: tuple[str, ...] = ()
    """Options that are numbers of bytes."""
    choices: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    tunables: tuple[Tunable, ...] = ()
    """Options as well: an experiment may set their default."""
    amplification: Callable[[Parameters], Amplification] = lambda _: Amplification()
    raw_bytes: Callable[[Parameters], int | None] = lambda _: None
    url: Callable[[Parameters, str], str | None] = lambda _options, _state: None
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Told to the scripts beside the options."""
    servers_option: str | None = None
    """Of how many servers it is made where no `address` names them."""
    needs_address: bool = False
    """Only mounts what exists elsewhere."""
    survives_remount: bool = True
    """What is on it is still there when it was unmounted."""


def _loop(file_system: str, package: str) -> Preset:
    return Preset(
        script="loop",
        programs={f"mkfs.{file_system}": package, "losetup": "mount"},
        # xfs makes nothing below 300 MiB.
        options={"size": 1 << 30, "mount_options": "defaults", "direct_io": "off"},
        sizes=("size",),
        choices={"direct_io": ("on", "off")},
        raw_bytes=lambda options: int(options["size"]),
        fixed={"LAB_FILE_SYSTEM": file_system},
    )


def _client(command: str, programs: Mapping[str, str], **options: Value) -> Preset:
    """Mounts an existing installation; options are in `command` as the script finds them."""
    return Preset(
        script="client",
        programs=programs,
        options={"address": "", **options},
        fixed={"LAB_COMMAND": command},
        needs_address=True,
    )


def _copies(key: str) -> Callable[[Parameters], Amplification]:
    """A client, or the first server, sends each byte to so many servers, which each keep it."""
    return lambda options: Amplification(float(options[key]), float(options[key]))


def _gluster_amplification(options: Parameters) -> Amplification:
    bricks = int(options["bricks"])
    if options["layout"] == "replicate":
        return Amplification(bricks, bricks)
    if options["layout"] == "disperse":
        # So many of the bricks hold parity.
        data = bricks - int(options["redundancy"])
        return Amplification(bricks / data, bricks / data)
    return Amplification()


def _ceph_amplification(options: Parameters) -> Amplification:
    """BlueStore writes large writes once, and small ones to its journal first; the copies, or the
    parity, are what is known for all sizes."""
    if options["data_pool"] == "erasure":
        data, parity = int(options["ec_data"]), int(options["ec_parity"])
        return Amplification((data + parity) / data, (data + parity) / data)
    return _copies("copies")(options)


def _terrace_url(options: Parameters, state: str) -> str | None:
    count = int(options["server_count"])
    if count == 0:
        return f"{state}/store-1"
    ports = range(int(options["port"]), int(options["port"]) + count)
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"terrace://{hosts}/?secret={state}/secret"


_ORANGEFS = 'mount -t pvfs2 "tcp://$LAB_ADDRESS:$LAB_PORT/$LAB_VOLUME" "$LAB_MOUNT"'
_BEEGFS = (
    'mount -t beegfs -o "cfgFile=$LAB_CONFIGURATION,sysMgmtdHost=$LAB_ADDRESS" '
    'beegfs_lab "$LAB_MOUNT"'
)
_LUSTRE = 'mount -t lustre "$LAB_ADDRESS:/$LAB_VOLUME" "$LAB_MOUNT"'
# JULEA finds its servers in a configuration file and not by an address.
_JULEA = (
    'JULEA_CONFIG="$LAB_ADDRESS" setsid julea-fuse "$LAB_MOUNT" >"$LAB_STATE/log/fuse.log" 2>&1'
)

# Servers of the lab have a network of their own.
_NETWORK_PROGRAMS = {"ip": "iproute2", "nsenter": "util-linux"}

PRESETS: Mapping[str, Preset] = {
    "tmpfs": Preset(
        script="tmpfs",
        programs={},
        options={"size": 1 << 30},
        sizes=("size",),
        raw_bytes=lambda options: int(options["size"]),
        survives_remount=False,
    ),
    "ext4": _loop("ext4", "e2fsprogs"),
    "xfs": _loop("xfs", "xfsprogs"),
    "btrfs": _loop("btrfs", "btrfs-progs"),
    "glusterfs": Preset(
        script="glusterfs",
        servers_option="bricks",
        programs={"glusterfs": "glusterfs-client"},
        own_programs={
            "glusterd": "glusterfs-server",
            "gluster": "glusterfs-cli",
            **_NETWORK_PROGRAMS,
        },
        options={
            "address": "",
            "volume": "lab",
            "bricks": 2,
            "layout": "distribute",
            "redundancy": 1,
        },
        choices={"layout": ("distribute", "replicate", "disperse")},
        tunables=(
            Tunable("write_behind", ("on", "off"), "on"),
            Tunable("io_cache", ("on", "off"), "on"),
            Tunable("read_ahead", ("on", "off"), "on"),
            Tunable("io_threads", (4, 8, 16, 32, 64), 16),
            Tunable("cache_size", ("32MB", "128MB", "512MB"), "32MB"),
        ),
        amplification=_gluster_amplification,
    ),
    "moosefs": Preset(
        script="moosefs",
        servers_option="chunkservers",
        programs={"mfsmount": "moosefs-client"},
        own_programs={
            "mfsmaster": "moosefs-master",
            "mfschunkserver": "moosefs-chunkserver",
            "mfscli": "moosefs-cli",
            "mfssetgoal": "moosefs-client",
            "mfssettrashtime": "moosefs-client",
            **_NETWORK_PROGRAMS,
        },
        # Without fsync a chunk server calls data safe that a loss of power would take.
        options={"address": "", "chunkservers": 2, "fsync": 1},
        choices={"fsync": (0, 1)},
        tunables=(
            Tunable("goal", (1, 2), 1),
            # A day is what the package has by default.
            Tunable("trash_seconds", (0, 3600, 86400), 0),
            Tunable("write_cache_mb", (16, 128, 512), 128),
            Tunable("read_ahead_mb", (16, 256, 1024), 256),
        ),
        amplification=_copies("goal"),
    ),
    "cephfs": Preset(
        script="cephfs",
        servers_option="osds",
        programs={"ceph-fuse": "ceph-fuse"},
        own_programs={
            "ceph": "ceph-common",
            "ceph-authtool": "ceph-common",
            "monmaptool": "ceph-base",
            "ceph-mon": "ceph-mon",
            "ceph-mgr": "ceph-mgr",
            "ceph-osd": "ceph-osd",
            "ceph-mds": "ceph-mds",
            **_NETWORK_PROGRAMS,
        },
        options={
            "address": "",
            "osds": 3,
            "osd_size": 4 << 30,
            "keyring": "",
            "user": "admin",
            "data_pool": "replicated",
            "ec_data": 2,
            "ec_parity": 1,
        },
        sizes=("osd_size",),
        choices={"data_pool": ("replicated", "erasure")},
        tunables=(
            Tunable("copies", (1, 2, 3), 1),
            Tunable("pg_num", (16, 32, 64, 128), 16),
            Tunable("stripe_unit", (65536, 1048576, 4194304), 4194304),
            Tunable("stripe_count", (1, 2, 3), 1),
            Tunable("client_cache_mb", (64, 200, 1024), 200),
        ),
        amplification=_ceph_amplification,
        raw_bytes=lambda options: (
            None if options["address"] else int(options["osds"]) * int(options["osd_size"])
        ),
    ),
    "terrace": Preset(
        script="terrace",
        servers_option="server_count",
        programs={},
        options={
            "program": "terrace",
            "fast": "",
            "slow": "",
            "fast_capacity": "10GB",
            "catalog": "fjall",
            "server_count": 1,
            "port": 7520,
        },
        choices={"catalog": ("fjall", "lmdb")},
        tunables=(
            Tunable("policy", ("lru", "heat", "size", "s3-fifo", "write-buffer", "none"), "lru"),
            Tunable("high", (0.7, 0.8, 0.9, 0.95), 0.9),
            Tunable("low", (0.5, 0.6, 0.7, 0.8), 0.7),
            Tunable("stripe", ("64KiB", "256KiB", "1MiB", "4MiB"), "1MiB"),
            Tunable("threads", (1, 2, 4, 8), 4),
        ),
        url=_terrace_url,
    ),
    "nfs": Preset(
        script="nfs",
        programs={"mount.nfs": "nfs-common"},
        own_programs={"ganesha.nfsd": "nfs-ganesha-vfs", **_NETWORK_PROGRAMS},
        options={"address": "", "export": "/lab", "mount_options": "vers=4.2,hard"},
        # Linux takes no larger ones.
        tunables=(Tunable("request_bytes", (65536, 262144, 1048576), 1048576),),
    ),
    "nfs-fuse": Preset(
        script="nfs-fuse",
        programs={"fuse-nfs": ""},
        own_programs={"ganesha.nfsd": "nfs-ganesha-vfs", **_NETWORK_PROGRAMS},
        options={"address": "", "export": "/lab"},
    ),
    "orangefs": _client(_ORANGEFS, {"pvfs2-client": ""}, port=3334, volume="orangefs"),
    "beegfs": _client(_BEEGFS, {"beegfs-ctl": ""}, configuration="/etc/beegfs/beegfs-client.conf"),
    "lustre": _client(_LUSTRE, {"mount.lustre": ""}, volume="lustre"),
    "julea": _client(_JULEA, {"julea-fuse": ""}),
}


def from_preset(name: str, preset: Preset, settings: Settings) -> Plan:
    """The plan of a preset, with the options that an experiment sets."""
    options: dict[str, Value] = {
        key: _option(settings, preset, key, default) for key, default in preset.options.items()
    }
    tunables = tuple(_tunable(settings, one) for one in preset.tunables)
    if preset.needs_address and not options["address"]:
        raise settings.error("address", "is missing: this preset mounts what exists elsewhere")
    if options.get("layout") == "disperse":
        bricks, redundancy = int(options["bricks"]), int(options["redundancy"])
        if not 0 < redundancy < bricks:
            raise settings.error("redundancy", f"must leave more bricks for data, of {bricks}")
    state = PurePosixPath(settings.text("state", f"{STATE}/{name}"))
    if not state.is_absolute():
        raise settings.error("state", f"must be absolute, not {str(state)!r}")
    directory = PurePosixPath(settings.text("directory", "."))
    if directory.is_absolute() or ".." in directory.parts:
        raise settings.error("directory", "must be below the root of the file system")
    mount = state / "mnt"
    given = {**options, **{one.name: one.default for one in tunables}}
    up = _script(f"{preset.script}-up.sh")
    # The system itself, where an option says which of several builds that is.
    own = {str(options["program"]): ""} if "program" in options else {}
    if not options.get("address"):
        own = {**own, **preset.own_programs}
    environment = {
        "LAB_STATE": str(state),
        **preset.fixed,
        **{variable(key): str(value) for key, value in options.items()},
    }
    return Plan(
        name=name,
        path=mount / directory,
        mounts=(mount,),
        url=lambda parameters: preset.url({**options, **parameters}, str(state)),
        servers=settings.texts("servers", ()),
        is_exclusive=settings.flag("exclusive", True),
        setup=up,
        teardown=_script(f"{preset.script}-down.sh"),
        remount=(
            Step(up.name, ("env", "LAB_REMOUNT=1", *up.argv)) if preset.survives_remount else None
        ),
        timeout_s=settings.seconds("timeout", 300),
        environment=environment,
        programs={**preset.programs, **own},
        tunables=tunables,
        servers_option=None if options.get("address") else preset.servers_option,
        amplification=lambda parameters: preset.amplification({**options, **parameters}),
        usable_bytes=settings.bytes("usable_bytes") if "usable_bytes" in settings else None,
        raw_bytes=(
            settings.bytes("raw_bytes") if "raw_bytes" in settings else preset.raw_bytes(given)
        ),
    )


def _option(settings: Settings, preset: Preset, key: str, default: Value) -> Value:
    value: Value
    if key in preset.sizes:
        value = settings.bytes(key, default)
    elif isinstance(default, int):
        value = settings.integer(key, default)
    else:
        value = settings.text(key, default)
    if key in preset.choices and value not in preset.choices[key]:
        choices = ", ".join(map(str, preset.choices[key]))
        raise settings.error(key, f"{value!r} is none of {choices}")
    return value


def _tunable(settings: Settings, tunable: Tunable) -> Tunable:
    value = settings.raw(tunable.name, tunable.default)
    if value not in tunable.values:
        choices = ", ".join(map(str, tunable.values))
        raise settings.error(tunable.name, f"{value!r} is none of {choices}")
    return Tunable(tunable.name, tunable.values, value)


def _script(name: str) -> Step:
    """A script of the lab, sent together with what all of them share."""
    scripts = importlib.resources.files("terrace_lab.targets").joinpath("scripts")
    common, own = (scripts.joinpath(one).read_text(encoding="utf-8") for one in ("common.sh", name))
    return Step(name, ("bash", "-c", common + own, name))
