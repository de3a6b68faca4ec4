# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Constant totals, scaled forms, and the factors of servers and of where clients are."""

from pathlib import Path

import pytest

from terrace_lab import targets
from terrace_lab.errors import LabError, SettingsError
from terrace_lab.experiment import Experiment, client_bytes, parse
from terrace_lab.runner.parts import Parts
from terrace_lab.settings import Settings
from terrace_lab.workloads import ior_output

TEXT = """
name = "x"

[parameters]
total = "36GiB"
servers = [1, 2]

[scale]
total = "36MiB"

[hosts.c]
role = "client"
[hosts.s]
role = "server"
[hosts.b]
role = "both"

[targets.t]
kind = "terrace"
state = "/s"

[workloads.w]
kind = "gen"
total_bytes = "$total"

[factors]
servers = "$servers"
placement = ["exclusive", "converged"]
"""


def read(text: str = TEXT, *, is_scaled: bool = False, **parameters: str) -> Experiment:
    return parse(text, Path("/"), parameters, is_scaled=is_scaled)


def test_a_total_is_divided_among_the_clients() -> None:
    spec = read().workloads["w"]
    sizes = [client_bytes(spec, clients, 1, 1) for clients in (1, 2, 3, 4)]
    assert sizes == [36 << 30, 18 << 30, 12 << 30, 9 << 30]
    scaled = read(is_scaled=True).workloads["w"]
    assert client_bytes(scaled, 2, 1, 1) == 18 << 20


def test_a_total_may_be_a_multiple_of_the_memory_of_all_servers() -> None:
    spec = read(total="3x_server_ram").workloads["w"]
    assert client_bytes(spec, 2, 1 << 30, 4 << 30) == 6 << 30
    assert client_bytes(read(total="3x_ram").workloads["w"], 3, 1 << 30, 4 << 30) == 1 << 30


def test_what_is_given_comes_before_the_scaled_form() -> None:
    spec = read(is_scaled=True, total="1MiB").workloads["w"]
    assert spec.total_bytes == "1MiB"


def test_places_of_clients_are_hosts_by_their_role() -> None:
    experiment = read()
    names = {
        trial.factors["placement"]: [one.name for one in experiment.placed(trial)]
        for trial in experiment.trials
    }
    assert names == {"exclusive": ["c"], "converged": ["s", "b"]}


def test_the_number_of_servers_is_that_of_the_preset() -> None:
    experiment = read()
    parts = Parts(experiment)
    counts = [parts.parameters(trial)["servers"] for trial in experiment.trials]
    assert counts == [1, 1, 2, 2]
    for kind in ("terrace", "glusterfs", "moosefs", "cephfs"):
        target = targets.create("t", Settings("targets.t", {"kind": kind}))
        target.check_parameters({"servers": 3})
        assert "servers" not in {one.name for one in target.tunables()}, "no search changes it"
    fixed = targets.create("t", Settings("targets.t", {"kind": "tmpfs"}))
    with pytest.raises(LabError, match="cannot set up t: the number of its servers is fixed"):
        fixed.check_parameters({"servers": 3})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[scale]", "[scale]\nsize = 1", r"scale\.size: there is no parameter 'size'"),
        ('total = "36MiB"', "total = 1", r"scale\.total: must be of type str as the parameter"),
        ("servers = [1, 2]", "servers = [0]", r"factors\.servers: 0 is no number of servers"),
        ('"converged"', '"apart"', r"factors\.placement: 'apart' is none of exclusive, converged"),
        ('total_bytes = "$total"', 'total_bytes = "0"', r"total_bytes: must be more than nothing"),
        (
            'total_bytes = "$total"',
            'total_bytes = "$total"\nbytes_per_client = 1',
            r"workloads\.w\.total_bytes: is given beside bytes_per_client",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(old: str, new: str, message: str) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises(SettingsError, match=message):
        read(TEXT.replace(old, new))


def test_without_a_scaled_form_there_is_none_to_take() -> None:
    text = TEXT.replace('[scale]\ntotal = "36MiB"', "")
    with pytest.raises(SettingsError, match="scale: the experiment has no scaled form"):
        read(text, is_scaled=True)


def test_whole_invocations_are_read_as_a_whole() -> None:
    head = "access bw(MiB/s) total(s) iter\n"
    lines = "write 100.0 1.0 0\nread 200.0 0.5 0\nwrite 110.0 0.9 1\nread 210.0 0.4 1\n"
    found = [one.mib_s for one in ior_output.parse_all(head + lines, "write")]
    assert found == [100.0, 110.0]
    with pytest.raises(LabError, match="no whole result of write"):
        ior_output.parse_all(head, "write")
