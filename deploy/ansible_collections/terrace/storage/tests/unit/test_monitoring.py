# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Targets of Prometheus, and that the roles agree about ports."""

import importlib.util
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError

COLLECTION = Path(__file__).resolve().parents[2]
CHECKOUT = COLLECTION.parents[3]
SPEC = importlib.util.spec_from_file_location("monitoring", COLLECTION / "plugins/filter/monitoring.py")
monitoring = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(monitoring)

HOSTS = [
    {"name": "a", "address": "10.0.0.1", "ports": [7420, 7421], "mounts": False},
    {"name": "b", "address": "fd00::2", "ports": [7430], "mounts": True},
    {"name": "c", "address": "c", "ports": [], "mounts": True},
]


def targets(kind):
    found = monitoring.scrape_targets(HOSTS, kind, 9742, 9842)
    return {one["targets"][0]: one["labels"]["host"] for one in found}


def test_each_server_of_a_host_has_a_port():
    assert targets("servers") == {"10.0.0.1:9742": "a", "10.0.0.1:9743": "a", "[fd00::2]:9742": "b"}


def test_only_clients_mount():
    assert targets("mounts") == {"[fd00::2]:9842": "b", "c:9842": "c"}


def test_every_host_is_a_node():
    assert targets("nodes") == {"10.0.0.1:9100": "a", "[fd00::2]:9100": "b", "c:9100": "c"}


def test_other_kinds_are_refused():
    with pytest.raises(AnsibleFilterError, match="none of"):
        targets("pods")


def defaults(role):
    return yaml.safe_load((COLLECTION / f"roles/{role}/defaults/main.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("role", "name", "unit", "port"),
    [
        ("storage", "storage_metrics_port", "server", 9742),
        ("client", "client_metrics_port", "mount", 9842),
        ("monitoring", "monitoring_server_port", "server", 9742),
        ("monitoring", "monitoring_mount_port", "mount", 9842),
    ],
)
def test_ports_are_those_of_the_units(role, name, unit, port):
    assert f"default({port})" in defaults(role)[name]
    text = (CHECKOUT / f"packaging/systemd/terrace-{unit}@.service").read_text(encoding="utf-8")
    assert f"\nEnvironment=TERRACE_METRICS=127.0.0.1:{port}\n" in text
