# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The verbs of `terrace-lab`, one file each."""

from terrace_lab.commands import (
    check,
    extend,
    merge,
    meters,
    report,
    reproduce,
    resume,
    run,
    study,
    tune,
)

COMMANDS = [check, run, resume, extend, report, merge, study, reproduce, tune, meters]
