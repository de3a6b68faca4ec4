#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Checks rules and dashboards: promtool's checks and unit tests, layout of the dashboards, and that each metric is known.

    packaging/monitoring/check.py PROMTOOL

A metric is known that docs/reference/metrics.md lists, or that a rule records. Tests of the command hold the page, and the
names in these files, against real scrapes.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RULES = sorted((HERE / "prometheus").glob("*.yml"))
TESTS = sorted((HERE / "tests").glob("*.test.yml"))
DASHBOARDS = sorted((HERE / "grafana").glob("*.json"))
REFERENCE = ROOT / "docs" / "reference" / "metrics.md"

SUFFIXES = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"], "info": ["_info"]}
# Metrics of ours, and those that rules record, which have colons.
NAME = re.compile(r"\b(?:(?:terrace|process)_\w+|\w+:terrace_\w+:\w+)\b")
# What Grafana fills in.
VARIABLES = {"$__rate_interval": "5m", "$instance": ".*", "$tier": ".*"}
COLUMNS = 24


def documented() -> set[str]:
    """The names of samples that the reference lists."""
    row = re.compile(r"^\| `((?:terrace|process)_\w+)` \| (\w+) \|", re.M)
    text = REFERENCE.read_text(encoding="utf-8")
    return {name + suffix for name, kind in row.findall(text) for suffix in SUFFIXES[kind]}


def recorded() -> set[str]:
    return {name for path in RULES for name in re.findall(r"- record: (\S+)", path.read_text(encoding="utf-8"))}


def panels(board: dict):
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", [])


def expressions(board: dict):
    """The queries of a dashboard, and the metrics of its variables."""
    for panel in panels(board):
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            metric = re.fullmatch(r"label_values\((\w+), \w+\)", variable["definition"])
            yield variable["name"], metric.group(1) if metric else variable["definition"]


def layout_problems(board: dict):
    """Whether panels have titles, queries and places of their own."""
    seen: dict[tuple[int, int], str] = {}
    shown = list(panels(board))
    if len({panel["id"] for panel in shown}) != len(shown):
        yield "two panels have one id"
    for panel in shown:
        title, place = panel.get("title", ""), panel["gridPos"]
        if not title:
            yield f"panel {panel['id']} has no title"
        if panel["type"] != "row" and not panel.get("targets"):
            yield f"{title} has no query"
        if place["x"] + place["w"] > COLUMNS:
            yield f"{title} is wider than the page"
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                if (x, y) in seen:
                    yield f"{title} lies over {seen[x, y]}"
                    return
                seen[x, y] = title


def filled_in(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def run(*command: str | Path, cwd: Path | None = None) -> bool:
    return subprocess.run([str(word) for word in command], cwd=cwd).returncode == 0


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit("usage: check.py PROMTOOL (in the package prometheus of Debian)")
    promtool = sys.argv[1]
    problems = []
    known = documented() | recorded()
    used = [(path.name, path.read_text(encoding="utf-8")) for path in RULES]
    queries = []
    for path in DASHBOARDS:
        board = json.loads(path.read_text(encoding="utf-8"))
        problems += [f"{path.name}: {problem}" for problem in layout_problems(board)]
        for title, expression in expressions(board):
            used.append((f"{path.name}: {title}", expression))
            queries.append(filled_in(expression))
    for place, text in used:
        names = NAME.findall(text)
        problems += [f"{place}: {name} is no metric" for name in names if name not in known]
        if place not in {path.name for path in RULES} and not names:
            problems.append(f"{place}: its query names no metric")
    if not run(promtool, "check", "rules", *RULES):
        problems.append("promtool refuses the rules")
    for path in TESTS:
        if not run(promtool, "test", "rules", path.name, cwd=path.parent):
            problems.append(f"{path.name} fails")
    with tempfile.TemporaryDirectory() as directory:
        # Queries of dashboards are parsed as rules.
        rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
        file = Path(directory) / "queries.yml"
        file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")
        if not run(promtool, "check", "rules", "--lint=none", file):
            problems.append("promtool refuses a query of a dashboard")
    for problem in problems:
        print(f"check-monitoring: {problem}")
    if not problems:
        print(f"check-monitoring: {len(RULES)} files of rules, {len(queries)} queries of {len(DASHBOARDS)} dashboards")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
