# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Experiment files: what they come to, and that mistakes in them are found before anything runs."""

from pathlib import Path

import pytest

from terrace_lab.errors import SettingsError
from terrace_lab.experiment import Experiment, freeze, load_frozen, parse, resolve_bytes

EXAMPLE = """
schema = 1
name = "two-disks"
seed = 4711
reference = "a"

[parameters]
size = "64MiB"
files = 100

[targets.a]
kind = "path"
path = "/mnt/a"
price = 100.0

[targets.b]
kind = "mount"
path = "/mnt/b"
setup = "up.sh"

[meters.m]
kind = "model"
required = false

[workloads.seq]
kind = "fio"
bytes_per_client = "$size"

[workloads.md]
kind = "gen"
params = { files = "$files", label = "of ${files}" }

[factors]
clients = [1, 2]
"workload.xfer" = ["64KiB", "1MiB"]
"""


def read(text: str, **parameters: str) -> Experiment:
    return parse(text, Path("/exp"), parameters)


def test_trials_are_all_combinations() -> None:
    experiment = read(EXAMPLE)
    assert len(experiment.trials) == 2 * 2 * 2 * 2
    names = [trial.name for trial in experiment.trials]
    assert len(set(names)) == 16
    assert "seq-a-c1-xfer_64KiB" in names
    groups = {trial.group for trial in experiment.trials}
    assert len(groups) == 8, "a group has all targets"


def test_parameters_keep_their_type_and_can_be_set() -> None:
    workload = read(EXAMPLE, files="7").workloads["md"]
    assert workload.settings["params"] == {"files": 7, "label": "of 7"}
    assert read(EXAMPLE, size="1GiB").workloads["seq"].bytes_per_client == "1GiB"
    with pytest.raises(
        SettingsError, match=r"no parameter 'sise'; did you mean 'size'\? known are files, size"
    ):
        read(EXAMPLE, sise="1")
    with pytest.raises(SettingsError, match=r"parameters\.files: must be of type int"):
        read(EXAMPLE, files='"many"')


def test_scripts_are_beside_the_experiment_and_prices_are_not_for_targets() -> None:
    experiment = read(EXAMPLE)
    assert experiment.targets["b"].settings["setup"] == "/exp/up.sh"
    assert "price" not in experiment.targets["a"].settings


def test_the_hash_is_of_what_is_said_and_not_of_how() -> None:
    assert read(EXAMPLE).hash == read("# a remark\n" + EXAMPLE).hash
    assert read(EXAMPLE).hash != read(EXAMPLE, files="7").hash


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema = 1", "schema = 2", r"experiment\.schema: this lab reads schema 1"),
        ('name = "two-disks"', 'name = "../x"', r"experiment\.name: '\.\./x' is no name"),
        (
            'reference = "a"',
            'reference = "c"',
            r"experiment\.reference: there is no target 'c'; known are a, b",
        ),
        (
            "[factors]",
            '[factors]\ntarget = ["z"]',
            r"factors\.target: there is no target 'z'; known are a, b",
        ),
        ("clients = [1, 2]", "clients = [0]", r"factors\.clients: 0 is no number"),
        (
            '"workload.xfer"',
            '"xfer"',
            r"factors\.xfer: a further factor is the name of a setting.*clients",
        ),
        ("[factors]", "[repeat]\nmax = 3\n[factors]", r"repeat\.max: must be at least min, 6"),
        (
            "[factors]",
            "[repeat]\nmaxx = 3\n[factors]",
            r"repeat\.maxx: there is no such setting here; did you mean 'max'\? known are .*warmup",
        ),
        (
            "[factors]",
            "[repeat.cold]\ndrop = true\n[factors]",
            r"repeat\.cold\.drop: there is no such setting here; .*drop_caches, remount, cooldown",
        ),
        ("[factors]", "[bounds]\nlatncy = 1\n[factors]", r"bounds\.latncy: .* 'latency'\?"),
        ("[factors]", "[bounds]\npercentile = 101\n[factors]", r"percentile: must be at most 100"),
        (
            "[factors]",
            '[energy]\non_gap = "ignore"\n[factors]',
            r"energy\.on_gap: 'ignore' is none",
        ),
        (
            "[factors]",
            "[energy]\nshare = { psu = 1.5 }\n[factors]",
            r"energy\.share\.psu: must be above 0 and at most 1",
        ),
        (
            "[factors]",
            '[energy]\nscope = ["a"]\nshare = { psu = 0.5 }\n[factors]',
            r"energy\.share\.psu: is no name of energy\.scope",
        ),
        (
            "required = false",
            'backup_for = "x"',
            r"meters\.m\.backup_for: there is no meter 'x'; known are m",
        ),
        ('"$size"', '"lots"', r"workloads\.seq\.bytes_per_client: 'lots' is not bytes"),
        (
            '"$files"',
            '"$file"',
            r"workloads\.md\.params\.files: cannot fill '\$file': there is no parameter 'file'; "
            r"did you mean 'files'\? known are files, size; ",
        ),
        ('"of ${files}"', '"$ {files}"', r"workloads\.md\.params\.label: cannot fill .*`\$\$`"),
        ('size = "64MiB"', 'size = "64MiB"\nsise = 1', r"parameters\.sise: nothing names it as \$"),
        (
            "price = 100.0",
            'price = "100 euros"',
            r"targets\.a\.price: must be a number of at least",
        ),
        ("price = 100.0", "power_limit_w = -1", r"targets\.a\.power_limit_w: must be a number"),
        ("[targets.a]", "[targets.a", "experiment: .*line"),
        (
            "[parameters]",
            "more = 1\n[parameters]",
            r"experiment\.more: .* known are .*hosts, targets",
        ),
        ("required = false", 'backup_for = "m"', r"meters\.m\.backup_for: no meter stands in for"),
        ('"$size"', "0", r"workloads\.seq\.bytes_per_client: must be more than nothing"),
        ('"$size"', '"0x_ram"', r"workloads\.seq\.bytes_per_client: must be more than nothing"),
        ("clients = [1, 2]", "clients = []", r"factors\.clients: must be a list of numbers"),
        ("[factors]", '[[references]]\nlabel = "x"\n[factors]', r"references\[1\]\.unit: is miss"),
        (
            "[factors]",
            "[scale]\nfile = 1\n[factors]",
            r"scale\.file: there is no parameter 'file'; did you mean 'files'\? known are files, s",
        ),
        ('"1MiB"]', f'"{"x" * 300}"]', r"factors: the name of a trial is too long, seq-a-c1"),
    ],
)
def test_a_mistake_is_named_with_its_place(old: str, new: str, message: str) -> None:
    assert EXAMPLE.count(old) == 1
    with pytest.raises(SettingsError, match=message):
        read(EXAMPLE.replace(old, new))


LINE = """[[references]]
label = "x"
unit = "B/s"
source = "x"
conditions = "x"
value = 1
"""


@pytest.mark.parametrize(
    ("table", "place", "known"),
    [
        ("[hosts.h]", r"hosts\.h", "role, ssh, address, devices, probe_directories, nic, python"),
        ("[energy]", "energy", "scope, idle, subtract, share, on_gap, min_coverage, .*, weight"),
        ("[energy.idle]", r"energy\.idle", "seconds, settle"),
        ("[repeat]", "repeat", "stop, cold, min, max, order, warmup"),
        ("[repeat.stop]", r"repeat\.stop", "metric, ci, rel_half_width"),
        ("[repeat.cold]", r"repeat\.cold", "drop_caches, remount, cooldown"),
        ("[gate]", "gate", "load_max, disk_bytes_s_max, free_factor, wait, clock_bound, drain"),
        ("[probes]", "probes", "streams, enabled, size, .*, network_seconds"),
        ("[series]", "series", "enabled, period"),
        ("[bounds]", "bounds", "latency, percentile"),
        (LINE, r"references\[1\]", "label, unit, source, conditions, value, phase, workload"),
    ],
)
def test_a_wrong_key_of_each_table_names_the_right_ones(table: str, place: str, known: str) -> None:
    text = EXAMPLE.replace("[factors]", f"{table}\nzzzz = 1\n[factors]")
    message = rf"{place}\.zzzz: there is no such setting here; known are {known}$"
    with pytest.raises(SettingsError, match=message):
        read(text)


def test_a_frozen_experiment_says_the_same(tmp_path: Path) -> None:
    given = read(EXAMPLE.replace('"of ${files}"', '"$$ ${files}"'), files="7")
    path = tmp_path / "experiment.toml"
    path.write_text(freeze(given))
    frozen = load_frozen(path)
    assert frozen.hash == given.hash
    assert frozen.trials == given.trials
    assert frozen.workloads["md"].settings["params"]["label"] == "$ 7"


def test_a_frozen_experiment_can_be_begun_again() -> None:
    given = read(EXAMPLE, files="7")
    again = read(freeze(given))
    assert again.hash == given.hash
    assert again.trials == given.trials


def test_a_name_of_a_parameter_may_have_a_dash() -> None:
    for name in ("$write-size", "${write-size}"):
        text = EXAMPLE.replace("size =", "write-size =", 1).replace("$size", name)
        assert read(text).workloads["seq"].bytes_per_client == "64MiB"


def test_energy_does_not_stop_what_has_no_meter() -> None:
    text = EXAMPLE.replace('[meters.m]\nkind = "model"\nrequired = false\n', "")
    with pytest.raises(SettingsError, match=r"repeat\.stop\.metric: there is no meter"):
        read(text + '\n[repeat]\nstop = { metric = ["energy"] }\n')


def test_what_a_meter_is_for_is_nothing_to_its_driver() -> None:
    assert read(EXAMPLE).meters["m"].settings == {"kind": "model"}


def test_without_hosts_this_machine_is_both() -> None:
    experiment = read(EXAMPLE)
    assert [one.name for one in experiment.clients] == ["here"]
    assert [one.name for one in experiment.servers] == ["here"]


def test_sizes_may_be_multiples_of_memory() -> None:
    assert resolve_bytes("2x_ram", 1 << 30) == 2 << 30
    assert resolve_bytes("0.5x_ram", 1 << 30) == 1 << 29
    assert resolve_bytes("4KiB", 1 << 30) == 4096
    assert resolve_bytes(None, 1 << 30) is None
