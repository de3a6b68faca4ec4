# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the roles of kernel settings and of time write."""

import re
from pathlib import Path

import jinja2
import pytest
import yaml

COLLECTION = Path(__file__).resolve().parents[2]


def defaults(role):
    return yaml.safe_load((COLLECTION / f"roles/{role}/defaults/main.yml").read_text(encoding="utf-8"))


def render(role, template, **variables):
    """Renders a template as Ansible does; returns its lines without comments."""
    loader = jinja2.FileSystemLoader(COLLECTION / f"roles/{role}/templates")
    environment = jinja2.Environment(loader=loader, trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["dictsort"] = lambda value: sorted(value.items())
    text = environment.get_template(template).render(defaults(role) | variables)
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_settings_of_sysctl_are_sorted_lines():
    lines = render("tuning", "sysctl.conf.j2")
    assert lines == sorted(f"{name} = {value}" for name, value in defaults("tuning")["tuning_sysctl"].items())
    assert "vm.dirty_bytes = 1073741824" in lines


def test_writeback_begins_before_writers_block():
    settings = defaults("tuning")["tuning_sysctl"]
    assert settings["vm.dirty_background_bytes"] < settings["vm.dirty_bytes"]


RULE = (
    'ACTION=="add|change", SUBSYSTEM=="block", ENV{{DEVTYPE}}=="disk", KERNEL=="sd*|nvme*|vd*", '
    'ATTR{{queue/rotational}}=="{}", ATTR{{queue/scheduler}}="{}"'
)


@pytest.mark.parametrize(
    ("rotational", "flash", "rules"),
    [
        ("mq-deadline", "none", [(1, "mq-deadline"), (0, "none")]),
        ("", "kyber", [(0, "kyber")]),
        ("bfq", "", [(1, "bfq")]),
        ("", "", []),
    ],
)
def test_each_kind_of_disk_has_its_scheduler(rotational, flash, rules):
    lines = render("tuning", "scheduler.rules.j2", tuning_scheduler_rotational=rotational, tuning_scheduler_flash=flash)
    assert lines == [RULE.format(*rule) for rule in rules]


def test_huge_pages_are_a_choice_of_the_kernel():
    specification = yaml.safe_load((COLLECTION / "roles/tuning/meta/argument_specs.yml").read_text(encoding="utf-8"))
    choices = specification["argument_specs"]["main"]["options"]["tuning_transparent_huge_pages"]["choices"]
    assert set(choices) == {"", "always", "madvise", "never"}
    assert defaults("tuning")["tuning_transparent_huge_pages"] in choices


def test_servers_of_time_are_lines_of_chrony():
    assert render("time", "servers.j2", time_servers=["a.example.org", "10.0.0.1"]) == [
        "server a.example.org iburst",
        "server 10.0.0.1 iburst",
    ]


@pytest.mark.parametrize(("role", "variable"), [("tuning", "tuning_apply"), ("time", "time_start")])
def test_a_container_leaves_kernel_and_clock_alone(role, variable):
    expression = re.sub(r"ansible_facts\['virtualization_type'\]", "kind", defaults(role)[variable])
    for kind, applies in (("systemd-nspawn", "False"), ("docker", "False"), ("kvm", "True"), ("NA", "True")):
        assert jinja2.Environment().from_string(expression).render(kind=kind) == applies
