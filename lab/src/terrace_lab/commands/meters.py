# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Listens to the meters of an experiment for some seconds and says what they deliver.

Each meter is opened by its driver as in a run; nothing is recorded. Exit code 1 when one of them
does not deliver.
"""

import argparse
import sys
from pathlib import Path

from terrace_lab.commands import runs
from terrace_lab.errors import LabError
from terrace_lab.hosts import AgentHost
from terrace_lab.meters import registry
from terrace_lab.meters.trial import self_test
from terrace_lab.settings import Settings, parse_seconds

NAME = "meters"
HELP = "listen to the meters of an experiment"

SECONDS_MAX = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", type=Path, metavar="FILE", help="experiment file, TOML")
    runs.add_parameters(parser)
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=5.0,
        help="how long to listen to each, at most an hour (default: 5)",
    )


def _seconds(text: str) -> float:
    try:
        value = parse_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0 < value <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {SECONDS_MAX:g} s")
    return value


def run(arguments: argparse.Namespace) -> int:
    loaded = runs.load(arguments)
    if not loaded.meters:
        print("the experiment has no meters; kinds:", ", ".join(registry.kinds()))
    hosts = {
        name: AgentHost(name, spec.ssh, address=spec.address, python=spec.python)
        for name, spec in loaded.hosts.items()
    }
    failed = False
    try:
        for host in hosts.values():
            host.connect()
        for name, spec in loaded.meters.items():
            try:
                meter = registry.create(name, Settings(f"meters.{name}", spec.settings), hosts)
                trial = self_test(meter, arguments.seconds)
                print(f"{name}: {trial}")
                failed = failed or not trial.is_good
            except LabError as error:
                failed = True
                print(f"{name}: {error}", file=sys.stderr)
    finally:
        for host in hosts.values():
            host.close()
    return 1 if failed else 0
