# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The commands and settings of BeeGFS for every variant of the study, compared with golden files.

`UPDATE_GOLDEN=1` writes the files anew; the difference is then looked at before it is committed.
"""

import importlib.util
import json
import os
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError

COLLECTION = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).resolve().parent / "golden"
VARIANTS = sorted(path.name for path in (COLLECTION / "inventories/examples").glob("thesis-*"))


def load(name):
    spec = importlib.util.spec_from_file_location(name, COLLECTION / f"plugins/filter/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


beegfs, layout = load("beegfs"), load("layout")


def services_of(variant, version):
    inventory = yaml.safe_load((COLLECTION / "inventories/examples" / variant / "hosts.yml").read_text(encoding="utf-8"))["all"]
    variables, metas = inventory["vars"], list(inventory["children"]["terrace_meta"]["hosts"])
    plans = layout.volume_plan(variables["storage_volumes"])
    hosts = list(inventory["children"]["terrace_storage"]["hosts"])
    return {
        host: beegfs.beegfs_services(plans, number, "nvme1", variables["storage_service_mode"], version, has_metadata=host in metas)
        for number, host in enumerate(hosts, 1)
    }


def test_there_are_eight_variants():
    assert len(VARIANTS) == 8


@pytest.mark.parametrize("version", ["7.4", "8"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_services_are_as_in_the_golden_file(variant, version):
    found = json.dumps(services_of(variant, version), indent=1) + "\n"
    path = GOLDEN / f"beegfs-{version}-{variant}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("kind", "option"), [("meta", "-s"), ("storage", "-s"), ("storage", "-i")])
def test_numbers_are_unique_in_the_file_system(variant, kind, option):
    numbers = []
    for services in services_of(variant, "7.4").values():
        for service in (service for service in services if service["kind"] == kind):
            found = [setup["argv"][setup["argv"].index(option) + 1] for setup in service["setup"]]
            numbers += found if option == "-i" else found[:1]
    assert numbers
    assert len(numbers) == len(set(numbers))
    assert all(0 < int(number) < 65536 for number in numbers)


def test_instances_of_a_host_share_neither_port_nor_log_nor_configuration():
    storage = [service for service in services_of("thesis-multimode", "7.4")["nvme1"] if service["kind"] == "storage"]
    assert len(storage) == 4
    for key in ("connStoragePortTCP", "connStoragePortUDP", "logStdFile"):
        assert len({service["settings"][key] for service in storage}) == 4
    assert len({service["config"] for service in storage}) == 4


MIRRORS = [
    {"id": 1, "kind": "meta", "primary": "nvme1", "secondary": "nvme2"},
    {"id": 1, "kind": "storage", "primary": "nvme1:s1", "secondary": "nvme2:s1"},
    {"id": 2, "kind": "storage", "primary": "nvme2:s2", "secondary": "nvme1:s2"},
]
LISTED = """     BuddyGroupID   {0}ID   {1}ID
     ============   ================   ===============
                1                  {2}                 {3}
"""


@pytest.mark.parametrize("variant", ["thesis-multimode", "thesis-xfs-multi-target"])
def test_mirror_groups_are_as_in_the_golden_file(variant):
    plans = beegfs.beegfs_mirror_plan(MIRRORS, services_of(variant, "7.4"))
    found = json.dumps(plans, indent=1) + "\n"
    path = GOLDEN / f"beegfs-7.4-mirrors-{variant}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        ({"id": 3, "kind": "meta", "primary": "nvme1", "secondary": "gpu1"}, "no meta service is gpu1"),
        ({"id": 3, "kind": "storage", "primary": "nvme3:s1", "secondary": "nvme4:s9"}, "no storage service is nvme4:s9"),
        ({"id": 3, "kind": "storage", "primary": "nvme3:s1", "secondary": "nvme3:s2"}, "both members are on one host"),
        ({"id": 1, "kind": "meta", "primary": "nvme3", "secondary": "nvme4"}, "meta group 1 is there twice"),
        ({"id": 3, "kind": "meta", "primary": "nvme2", "secondary": "nvme3"}, "meta nvme2 is there twice"),
        ({"id": 0, "kind": "meta", "primary": "nvme3", "secondary": "nvme4"}, "id from 1"),
    ],
)
def test_mirror_groups_that_cannot_be_are_refused(group, problem):
    with pytest.raises(AnsibleFilterError, match=problem):
        beegfs.beegfs_mirror_plan([*MIRRORS, group], services_of("thesis-multimode", "7.4"))


def test_mirror_groups_of_version_8_are_refused():
    with pytest.raises(AnsibleFilterError, match="BeeGFS 8 are not known"):
        beegfs.beegfs_mirror_plan(MIRRORS, services_of("thesis-multimode", "8"), "8")


def test_only_missing_mirror_groups_are_made():
    plans = beegfs.beegfs_mirror_plan(MIRRORS, services_of("thesis-multimode", "7.4"))
    meta, storage, _ = plans
    listed = {
        "meta": LISTED.format("PrimaryNode", "SecondaryNode", *meta["members"]),
        # After a failure the secondary is the primary.
        "storage": LISTED.format("PrimaryTarget", "SecondaryTarget", *reversed(storage["members"])),
    }
    assert beegfs.beegfs_mirrors_missing(plans, listed) == plans[2:]
    assert beegfs.beegfs_mirrors_missing(plans, {"meta": "", "storage": ""}) == plans
    listed["meta"] = LISTED.format("PrimaryNode", "SecondaryNode", 1, 4)
    with pytest.raises(AnsibleFilterError, match="meta group 1 has the members"):
        beegfs.beegfs_mirrors_missing(plans, listed)


def test_the_owner_of_the_root_is_a_primary():
    plans = beegfs.beegfs_mirror_plan(MIRRORS, services_of("thesis-multimode", "7.4"))
    entry = "EntryID: root\nMetadata node: nvme{0} [ID: {0}]\n"
    assert beegfs.beegfs_root_problem(plans, entry.format(1)) == ""
    assert "node 2 owns the root" in beegfs.beegfs_root_problem(plans, entry.format(2))
    assert "does not name" in beegfs.beegfs_root_problem(plans, "")
    mirrored = "EntryID: root\nMetadata buddy group: 1\nCurrent primary metadata node: nvme2 [ID: 2]\n"
    assert beegfs.beegfs_root_is_mirrored(mirrored)
    assert not beegfs.beegfs_root_is_mirrored(entry.format(1))
    assert beegfs.beegfs_root_problem(plans, mirrored) == ""


def test_unknown_versions_are_refused():
    with pytest.raises(AnsibleFilterError, match="7.2 is not known"):
        beegfs.beegfs_version("7.2")
    assert beegfs.beegfs_version("8.1")["version"] == "8"
