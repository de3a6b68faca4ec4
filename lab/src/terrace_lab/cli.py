# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The command `terrace-lab`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from types import FrameType

from terrace_lab import __version__
from terrace_lab.errors import LabError

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130

DESCRIPTION = """\
Measures performance and energy of any file system or Terrace store, and keeps both in one record.

An experiment file says what is measured on what (docs/how-to/lab.md). A run of it is a directory
that holds everything: commands, outputs, samples of power, marks of phases, gaps. It may be killed
at any time, and resumed. Reports are made from that directory alone.
"""

EPILOG = """\
exit codes: 0 done; 1 cannot go on, the message says why; 2 wrong usage; 130 interrupted

examples:
  terrace-lab check nfs-vs-ceph.toml
  terrace-lab run nfs-vs-ceph.toml --output runs/1 --yes
  terrace-lab resume runs/1
  terrace-lab report runs/1 --pdf
  terrace-lab study hsm-policies --scale --output runs/hsm --yes
"""


def main(argv: list[str] | None = None) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return _run(argv)
    except LabError as error:
        print(f"terrace-lab: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("terrace-lab: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Who read the output has seen enough.
        return EXIT_ERROR


def _run(argv: list[str] | None) -> int:
    # Takes a second, in which somebody may interrupt it as well.
    from terrace_lab.commands import COMMANDS

    parser = argparse.ArgumentParser(
        prog="terrace-lab",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"terrace-lab {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        one = commands.add_parser(
            command.NAME,
            help=command.HELP,
            description=command.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(one)
        one.set_defaults(verb=command.run)
    arguments = parser.parse_args(argv)
    return int(arguments.verb(arguments))


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Ends a run in order, and to be resumed; more of them do not disturb that."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _wait)
    raise KeyboardInterrupt


def _wait(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"terrace-lab: ending; targets are being torn down\n")
