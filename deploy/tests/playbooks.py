# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Playbooks of the collection, run in the network of a test bed."""

import json
import os
import re
import subprocess
from pathlib import Path

from steps import TestBed, TestBedError

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOKS = ROOT / "deploy/ansible_collections/terrace/storage/playbooks"


class Playbooks:
    """Runs playbooks; keeps what the last one printed, and all of it in `work/ansible.log`."""

    def __init__(self, bed: TestBed, ansible: Path, work: Path):
        self.bed = bed
        self.ansible = ansible
        self.work = work
        self.log = ""

    def run(self, inventory: dict, name: str, *words: str, fails: bool = False) -> dict[str, int]:
        """Runs a playbook; returns the sums of its recap, such as `changed`."""
        hosts = self.work / "hosts.json"
        hosts.write_text(json.dumps(inventory), encoding="utf-8")
        environment = os.environ | {
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "deploy"),
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "0",
            "ANSIBLE_LOCAL_TEMP": str(self.work / "ansible"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.work / "control"),
            "LC_ALL": "C.UTF-8",
        }
        command = [
            "ip", "netns", "exec", self.bed.lan, self.ansible / "ansible-playbook", "-i", hosts,
            PLAYBOOKS / f"{name}.yml", *words,
        ]  # fmt: skip
        ran = subprocess.run([str(word) for word in command], env=environment, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
        self.log = ran.stdout
        with (self.work / "ansible.log").open("a", encoding="utf-8") as log:
            log.write(f"=== {name} {words}\n{ran.stdout}\n")
        if (ran.returncode != 0) != fails:
            raise TestBedError(f"{name}.yml {words}: status {ran.returncode}:\n{ran.stdout[-6000:]}")
        counts: dict[str, int] = {}
        for line in re.findall(r"^h\d+ +: (.*)$", ran.stdout, re.M):
            for key, number in re.findall(r"(\w+)=(\d+)", line):
                counts[key] = counts.get(key, 0) + int(number)
        print(f" ({name}.yml: ok={counts.get('ok', 0)} changed={counts.get('changed', 0)})", end="", flush=True)
        return counts

    def printed(self) -> str:
        """What the last playbook printed, on one line: Ansible breaks long texts where it likes."""
        return re.sub(r"\s+", " ", self.log)

    def changed_tasks(self) -> str:
        """The tasks of the last playbook that changed something."""
        return "\n".join(re.findall(r"^TASK[^\n]*\n(?:[^\n]+\n)*?changed:[^\n]*", self.log, re.M))[-3000:]
