# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What may go wrong, by what a caller would do about it."""


class LabError(Exception):
    """Cannot go on; the message has the form `cannot VERB: REASON name=value`."""


class SettingsError(LabError):
    """Something in an experiment file is wrong; the message begins with where."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where


class MeterLost(LabError):
    """A meter does not answer, or answers what is none; it is opened again after a while."""


class HostLost(LabError):
    """The agent of a host is gone, and with it what it had started."""


class PhaseFailed(LabError):
    """A phase of a workload did not do its work; the repetition counts as failed."""


class ParseError(LabError):
    """The output of a program is not what that program prints when it succeeds."""
