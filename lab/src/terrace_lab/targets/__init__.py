# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is measured. Presets are kinds as well; others come as entry points of `lab.targets`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path, PurePosixPath

from terrace_lab.settings import Settings
from terrace_lab.targets.base import Amplification, Target
from terrace_lab.targets.presets import PRESETS, from_preset
from terrace_lab.targets.system import Parameters, Plan, Step, System

KINDS = ("path", "mount", "store", "command")
ENTRY_POINTS = "lab.targets"


def kinds() -> list[str]:
    """All kinds that an experiment may name."""
    return [*KINDS, *PRESETS, *(point.name for point in entry_points(group=ENTRY_POINTS))]


def create(name: str, settings: Settings) -> Target:
    """Makes the target that one table of an experiment describes."""
    kind = settings.text("kind")
    settings.also_known("parameters", "price", "power_limit_w", "baseline", "nominal_bytes")
    target: Target
    if kind in KINDS:
        target = System(_plan(name, kind, settings))
    elif kind in PRESETS:
        target = System(from_preset(name, PRESETS[kind], settings))
    else:
        found = [point for point in entry_points(group=ENTRY_POINTS) if point.name == kind]
        if not found:
            raise settings.error("kind", f"{kind!r} is none of {', '.join(kinds())}")
        target = found[0].load()(name, settings)
    settings.finish()
    return target


def _plan(name: str, kind: str, settings: Settings) -> Plan:
    """The plan of a target that the experiment describes all of."""
    path = None
    if kind != "store" or "path" in settings:
        path = PurePosixPath(settings.text("path"))
        if not path.is_absolute():
            raise settings.error("path", f"must be absolute, not {str(path)!r}")
    has_steps = kind != "path"
    mounts: tuple[PurePosixPath, ...] = ()
    # A store that files are used on is mounted, too: nothing else makes a path out of it.
    if path is not None and kind in ("mount", "store"):
        # Scripts often mount a root and make a directory in it.
        mounts = (path, path.parent)
    if "mount" in settings and path is not None and kind != "path":
        mount = PurePosixPath(settings.text("mount"))
        if mount not in (path, *path.parents):
            raise settings.error("mount", f"{str(mount)!r} is not above the path {str(path)!r}")
        mounts = (mount,)
    setup = _step(settings, "setup") if has_steps else None
    amplification = Amplification(
        network_write=settings.number("write_net_amp", 1.0),
        disk_write=settings.number("write_disk_amp", 1.0),
        disk_read=settings.number("read_disk_amp", 1.0),
    )
    environment = settings.table("environment")
    plan = Plan(
        name=name,
        path=path,
        mounts=mounts,
        url=_url(settings) if kind == "store" else lambda _: None,
        servers=settings.texts("servers", ()),
        # What was not set up by us is not ours to take away between trials.
        is_exclusive=settings.flag("exclusive", setup is not None),
        servers_option="server_count" if setup is not None else None,
        setup=setup,
        teardown=_step(settings, "teardown") if has_steps else None,
        remount=_step(settings, "remount") if has_steps else None,
        server_setup=_step(settings, "server_setup") if has_steps else None,
        server_teardown=_step(settings, "server_teardown") if has_steps else None,
        timeout_s=settings.seconds("timeout", 300),
        environment={key: environment.text(key) for key in environment.values},
        amplification=lambda _: amplification,
        usable_bytes=settings.bytes("usable_bytes") if "usable_bytes" in settings else None,
        raw_bytes=settings.bytes("raw_bytes") if "raw_bytes" in settings else None,
    )
    for up, down in (("setup", "teardown"), ("server_setup", "server_teardown")):
        if has_steps and up in settings and down not in settings:
            raise settings.error(down, f"is missing beside {up}")
    return plan


def _step(settings: Settings, key: str) -> Step | None:
    """A script for bash, by its file here, or a command, as a list of words."""
    value = settings.raw(key)
    if value is None:
        return None
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return Step(value[0], tuple(value))
    if not isinstance(value, str):
        raise settings.error(key, f"must be a script or a list of words, not {value!r}")
    file = Path(value)
    try:
        content = file.read_text(encoding="utf-8")
    except OSError as error:
        raise settings.error(key, f"cannot read the script: {error.strerror} {file}") from None
    except UnicodeDecodeError:
        reason = f"{file} is no script; a program is a list of words, as in ['{file}']"
        raise settings.error(key, reason) from None
    # As an argument: nothing is left on the host, and standard input stays free.
    return Step(file.name, ("bash", "-c", content, file.name))


def _url(settings: Settings) -> Callable[[Parameters], str | None]:
    endpoint = settings.text("endpoint")
    if "://" not in endpoint and not endpoint.startswith("/"):
        raise settings.error(
            "endpoint", f"{endpoint!r} is no address, as terrace://host:7420, nor a directory"
        )
    return lambda _: endpoint
