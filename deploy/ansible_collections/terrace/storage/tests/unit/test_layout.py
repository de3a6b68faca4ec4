# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Plans of every layout and every variant of the study, and what is on a disk already."""

import importlib.util
import json
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError

COLLECTION = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("layout", COLLECTION / "plugins/filter/layout.py")
layout = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(layout)


def disks(count, first=0):
    return [f"/dev/disk/by-id/nvme-{number}" for number in range(first, first + count)]


def plan_of(kind, count, **more):
    return layout.volume_plan([{"name": "s1", "layout": kind, "devices": disks(count), **more}])[0]


def test_xfs_is_made_and_mounted_by_its_label():
    plan = plan_of("xfs", 1)
    assert plan["commands"] == [["mkfs.xfs", "-q", "-L", "s1", "/dev/disk/by-id/nvme-0"]]
    assert plan["mount"] == {
        "what": "/dev/disk/by-id/nvme-0",
        "where": "/srv/terrace/s1",
        "type": "xfs",
        "options": "noatime,inode64",
    }


@pytest.mark.parametrize(("kind", "level", "width"), [("md0_xfs", 0, 4), ("md5_xfs", 5, 3), ("md6_xfs", 6, 2)])
def test_md_stripes_are_known_to_xfs(kind, level, width):
    create, format_it = plan_of(kind, 4)["commands"]
    assert create[:5] == ["mdadm", "--create", "/dev/md/s1", "--run", f"--level={level}"]
    assert create[-4:] == disks(4)
    assert format_it == ["mkfs.xfs", "-q", "-L", "s1", "-d", f"su=512k,sw={width}", "/dev/md/s1"]


@pytest.mark.parametrize(("kind", "vdev"), [("zfs_stripe", []), ("zfs_raidz1", ["raidz1"]), ("zfs_raidz2", ["raidz2"])])
def test_zfs_pools_mount_themselves(kind, vdev):
    plan = plan_of(kind, 4)
    (create,) = plan["commands"]
    assert create[:2] == ["zpool", "create"]
    assert create[create.index("-m") :] == ["-m", "/srv/terrace/s1", "s1", *vdev, *disks(4)]
    assert plan["mount"] is None


def test_a_directory_needs_nothing():
    plan = plan_of("dir", 0)
    assert (plan["commands"], plan["mount"], plan["packages"]) == ([], None, [])


@pytest.mark.parametrize(
    ("volume", "reason"),
    [
        ({"name": "S1", "layout": "xfs"}, "not a letter"),
        ({"name": "s1", "layout": "btrfs"}, "is none of"),
        ({"name": "s1", "layout": "zfs_raidz2", "devices": disks(3)}, "takes 4 to 64 devices, not 3"),
        ({"name": "s1", "layout": "xfs", "devices": ["/dev/sdb"]}, "by-id"),
        ({"name": "s1", "layout": "md0_xfs", "devices": disks(1) * 2}, "belongs to s1 and s1"),
        ({"name": "s1", "layout": "dir", "use": "mgmt"}, "use is one of"),
        ({"name": "s1", "layout": "dir", "tier": "fast"}, "tier is one of"),
    ],
)
def test_wrong_volumes_are_refused(volume, reason):
    with pytest.raises(AnsibleFilterError, match=reason):
        layout.volume_plan([volume])


def test_all_problems_are_reported_at_once():
    with pytest.raises(AnsibleFilterError, match="takes 1 to 1.*twice"):
        layout.volume_plan([{"name": "s1", "layout": "xfs"}, {"name": "s1", "layout": "dir"}])


def test_unstable_names_can_be_allowed():
    volume = {"name": "s1", "layout": "xfs", "devices": ["/dev/sdb"]}
    assert layout.volume_plan([volume], allow_unstable_names=True)[0]["devices"] == ["/dev/sdb"]


def probe(device, *signatures, **more):
    text = json.dumps({"signatures": list(signatures)}) if signatures else ""
    return {"device": device, "exists": True, "signatures": text, "blkid_status": 0 if signatures else 2, **more}


def states(plan, *probes):
    (state,) = layout.volume_states([plan], list(probes), "h1")
    return state


def test_an_empty_disk_is_taken():
    assert states(plan_of("xfs", 1), probe(disks(1)[0]))["state"] == "empty"


def test_the_expected_volume_is_kept():
    mine = {"type": "xfs", "label": "s1"}
    assert states(plan_of("xfs", 1), probe(disks(1)[0], mine))["state"] == "expected"


@pytest.mark.parametrize(
    "signature",
    [
        {"type": "xfs", "label": "s2"},
        {"type": "xfs"},
        {"type": "ext4", "label": "s1"},
        {"type": "gpt"},
        {"type": "LVM2_member"},
    ],
)
def test_anything_else_is_refused_with_the_way_to_free_it(signature):
    state = states(plan_of("xfs", 1), probe(disks(1)[0], signature))
    assert state["state"] == "foreign"
    (problem,) = state["problems"]
    for text in ("h1", disks(1)[0], signature["type"], "wipefs --all /dev/disk/by-id/nvme-0"):
        assert text in problem


def test_the_expected_volume_under_another_signature_is_refused():
    mine, other = {"type": "xfs", "label": "s1"}, {"type": "gpt"}
    assert states(plan_of("xfs", 1), probe(disks(1)[0], mine, other))["state"] == "foreign"


def test_contradicting_signatures_are_refused():
    assert states(plan_of("xfs", 1), probe(disks(1)[0], blkid_status=8))["state"] == "foreign"


def test_a_missing_disk_is_refused():
    state = states(plan_of("xfs", 1), probe(disks(1)[0], exists=False))
    assert (state["state"], "is not there" in state["problems"][0]) == ("foreign", True)


def test_half_a_volume_is_refused():
    member = {"type": "linux_raid_member", "label": "any:s1"}
    first, second = disks(2)
    assert states(plan_of("md0_xfs", 2), probe(first, member), probe(second))["state"] == "foreign"
    assert states(plan_of("md0_xfs", 2), probe(first, member), probe(second, member))["state"] == "expected"


def test_one_store_has_all_volumes_the_fastest_first():
    plans = layout.volume_plan(
        [
            {"name": "slow", "layout": "dir", "tier": "archive"},
            {"name": "fast", "layout": "dir", "tier": "performance", "capacity": "1GB"},
            {"name": "names", "layout": "xfs", "devices": disks(1), "use": "meta"},
        ]
    )
    (instance,) = layout.store_instances(plans)
    assert [layout.tier_argument(tier) for tier in instance["tiers"]] == [
        "fast=/srv/terrace/fast/main-tier,capacity=1GB",
        "slow=/srv/terrace/slow/main-tier",
    ]
    assert instance["store"] == "/srv/terrace/names/main-store"
    assert instance["mount_points"] == ["/srv/terrace/names"]


def test_multi_mode_has_one_server_for_each_volume():
    plans = layout.volume_plan([{"name": name, "layout": "dir"} for name in ("s1", "s2", "s3")])
    instances = layout.store_instances(plans, mode="multi_mode", port=7500)
    assert [(instance["name"], instance["port"]) for instance in instances] == [("s1", 7500), ("s2", 7501), ("s3", 7502)]
    assert instances[1]["store"] == "/srv/terrace/s2/s2-store"


def test_a_host_without_volumes_serves_nothing():
    assert layout.store_instances([]) == []


def tier(name, used, capacity, **more):
    report = {"name": name, "used_bytes": used, "reserved_bytes": 0, "capacity_bytes": capacity}
    return report | {"offline": None, "is_writable": True} | more


def test_a_tier_is_drained_only_where_others_have_room():
    tiers = [tier("a", 50, 100), tier("b", 70, 100), tier("c", 0, 100, offline="gone")]
    assert "holds 70 bytes, and the other tiers have room for 50" in layout.drain_problem(tiers, "b")
    assert layout.drain_problem(tiers, "a") == "a holds 50 bytes, and the other tiers have room for 30: add a tier first"
    assert layout.drain_problem([tier("a", 50, 100), tier("b", 0, None)], "a") == ""
    assert "only tier" in layout.drain_problem([tier("a", 0, 100)], "a")
    assert layout.drain_problem(tiers, "gone") == ""


def test_the_map_counts_additions():
    text = layout.server_map([{"name": "h1", "address": "h1:7420"}, {"name": "h2", "address": "h2:7420", "since": 3}])
    assert "epoch = 3\n" in text
    assert text.endswith('name = "h2"\naddress = "h2:7420"\nsince = 3\n')


@pytest.mark.parametrize(
    ("path", "name"),
    [("/mnt/files", "mnt-files"), ("/mnt/my-files", "mnt-my\\x2dfiles"), ("/", "-"), ("/.a/b.c", "\\x2ea-b.c")],
)
def test_unit_names_are_those_of_systemd(path, name):
    assert layout.unit_name(path) == name


# The eight variants of the study: where each keeps names and bytes, and the commands that make its volumes.
VARIANTS = {
    "thesis-zfs-stripe": ("multi_target", ["zpool"], ["zfs_stripe"]),
    "thesis-zfs-raidz": ("multi_target", ["zpool"], ["zfs_raidz1"]),
    "thesis-ext4meta-zfs-stripe": ("multi_target", ["mkfs.ext4", "zpool"], ["ext4", "zfs_stripe"]),
    "thesis-ext4meta-zfs-raidz": ("multi_target", ["mkfs.ext4", "zpool"], ["ext4", "zfs_raidz1"]),
    "thesis-one-meta": ("multi_target", ["zpool"], ["zfs_stripe"]),
    "thesis-xfs-multi-target": ("multi_target", ["mkfs.xfs"], ["xfs"]),
    "thesis-multimode": ("multi_mode", ["mkfs.xfs"], ["xfs"]),
    "thesis-md-xfs": ("multi_target", ["mdadm", "mkfs.xfs"], ["md0_xfs"]),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_the_study_is_inventory_alone(variant):
    mode, programs, layouts = VARIANTS[variant]
    inventory = yaml.safe_load((COLLECTION / "inventories/examples" / variant / "hosts.yml").read_text(encoding="utf-8"))
    variables = inventory["all"]["vars"]
    assert variables["storage_service_mode"] == mode
    plans = layout.volume_plan(variables["storage_volumes"])
    assert sorted({command[0] for plan in plans for command in plan["commands"]}) == programs
    assert sorted({plan["layout"] for plan in plans}) == layouts
    storage = [plan for plan in plans if plan["use"] == "storage"]
    instances = layout.store_instances(plans, mode=mode)
    assert len(instances) == (len(storage) if mode == "multi_mode" else 1)
    children = inventory["all"]["children"]
    assert len(children["terrace_storage"]["hosts"]) == 4
    assert len(children["terrace_meta"]["hosts"]) == (1 if variant == "thesis-one-meta" else 4)
