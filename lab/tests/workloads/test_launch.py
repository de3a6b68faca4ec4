# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a program said when it failed, at whichever end of its words the reason is."""

import pytest
from clients import MakeContext

from terrace_lab.errors import PhaseFailed
from terrace_lab.hosts import Command
from terrace_lab.workloads.launch import launch

TALK = "for i in $(seq 200); do echo something else >&2; done"


@pytest.mark.parametrize("script", [f"echo no room >&2; {TALK}", f"{TALK}; echo no room >&2"])
def test_a_long_complaint_keeps_its_begin_and_its_end(
    script: str, make_context: MakeContext
) -> None:
    with pytest.raises(PhaseFailed, match="no room") as failure:
        launch(make_context(), "write", [Command(["sh", "-c", f"{script}; exit 3"])])
    assert "exit code 3" in str(failure.value)
    assert len(str(failure.value)) < 900


def test_what_is_said_on_standard_output_counts_where_nothing_else_is(
    make_context: MakeContext,
) -> None:
    with pytest.raises(PhaseFailed, match="cannot write: exit code 1 .*: busy"):
        launch(make_context(), "write", [Command(["sh", "-c", "echo busy; exit 1"])])
    with pytest.raises(PhaseFailed, match="it said nothing"):
        launch(make_context(), "write", [Command(["false"])])
