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


def test_unknown_versions_are_refused():
    with pytest.raises(AnsibleFilterError, match="7.2 is not known"):
        beegfs.beegfs_version("7.2")
    assert beegfs.beegfs_version("8.1")["version"] == "8"
