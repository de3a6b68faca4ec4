#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Each query of the dashboards returns data from a real scrape, and a browser draws the panels.

    dashboards_test.py TERRACE PROMETHEUS PICTURES

A server and a mount run on loopback, under a load that has something for every panel; Prometheus scrapes them and evaluates
the recording rules. Each panel is drawn from the answers to its own queries and photographed by headless Chromium into the
directory PICTURES. It is not Grafana that draws: what is shown here is that queries have answers, and which.
"""

import contextlib
import html
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from steps import bound, expect, step

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging/monitoring"))

from check import DASHBOARDS, RULES, filled_in, panels  # noqa: E402

TIME_MAX_S = 600
ANSWERS_MAX_S = 240
STEP_S = 2
# Points of a line that are enough to see one.
POINTS_MIN = 10
FILE_BYTES = 320_000
SETTINGS = """
[[tier]]
name = "fast"
path = "{top}/fast"
capacity = "4MB"
idle_power = "5W"
active_power = "9W"
[[tier]]
name = "slow"
path = "{top}/slow"
capacity = "1GB"
idle_power = "4W"
active_power = "8W"
[policy]
name = "lru"
"""
COLOURS = ["#3366cc", "#dc3912", "#ff9900", "#109618", "#990099", "#0099c6", "#dd4477", "#66aa00"]
PAGE = """<!doctype html><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 12px sans-serif; margin: 12px; background: #f4f5f5 }}
main {{ display: grid; grid-template-columns: repeat(24, 1fr); grid-auto-rows: 34px; gap: 6px }}
section {{ background: white; border: 1px solid #ddd; padding: 4px 8px; overflow: hidden }}
section.row {{ background: none; border: none; font-weight: bold; font-size: 15px }}
h2 {{ font-size: 12px; margin: 0 0 4px }} b.stat {{ font-size: 34px }} td {{ padding: 0 6px; border-bottom: 1px solid #eee }}
svg {{ display: block; width: 100%; height: calc(100% - 44px) }} small span {{ margin-right: 8px; white-space: nowrap }}
</style><h1>{title}</h1><main>{panels}</main>"""
PAGE_WIDTH, ROW_PIXELS = 1600, 40


class Prometheus:
    """The process, and what it answers."""

    def __init__(self, program: Path, top: Path, targets: dict[str, int]):
        (self.port,) = free_ports(1)
        scrapes = [{"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for job, port in targets.items()]
        configuration = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(path) for path in RULES],
            "scrape_configs": scrapes,
        }
        (top / "prometheus.yml").write_text(json.dumps(configuration), encoding="utf-8")
        self.begun = time.time()
        self.command: list[str | Path] = [
            program, f"--config.file={top / 'prometheus.yml'}", f"--storage.tsdb.path={top / 'series'}",
            f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn",
        ]  # fmt: skip

    def ask(self, panel: dict, target: dict) -> list[dict]:
        """The series of a query: over time, or of now where the panel shows no time."""
        query = {"query": filled_in(target["expr"])}
        kind = "query"
        if panel["type"] in ("timeseries", "heatmap"):
            kind, query = "query_range", query | {"start": f"{self.begun}", "end": f"{time.time()}", "step": f"{STEP_S}"}
        url = f"http://127.0.0.1:{self.port}/api/v1/{kind}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            found = json.load(answer)["data"]["result"]
        # A series of nothing but NaN (the percentile of no operation) draws nothing.
        return [series for series in found if any(value != "NaN" for _, value in points(series))]


def points(series: dict) -> list[list]:
    return series.get("values") or [series["value"]]


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def running(log: Path, *command: str | Path) -> Iterator[subprocess.Popen]:
    with log.open("wb") as output:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def wait_for(what: str, log: Path, process: subprocess.Popen, holds) -> None:
    end = time.monotonic() + 60
    while not holds():
        expect(process.poll() is None and time.monotonic() < end, f"{what}: {log.read_text(encoding='utf-8', errors='replace')}")
        time.sleep(0.1)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


class Load:
    """Files through the mount, objects and a damaged one through the server: something for every panel."""

    def __init__(self, terrace: Path, store: str, mount: Path, top: Path):
        self.terrace, self.store, self.mount, self.top = terrace, store, mount, top
        self.rounds = 0
        (top / "in").write_bytes(os.urandom(FILE_BYTES))

    def call(self, *words: str, fails: bool = False) -> str:
        command = [str(self.terrace), "--store", self.store, *words]
        ran = subprocess.run(command, cwd=self.top, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        expect((ran.returncode != 0) == fails, f"{words}: status {ran.returncode}: {ran.stdout}{ran.stderr}")
        return ran.stdout

    def damage(self) -> None:
        """An object whose file has lost its end: each read of it is an error of the tier."""
        self.call("put", "lost", "in")
        self.call("pin", "lost")
        (segment,) = json.loads(self.call("--json", "explain", "lost"))["segments"]
        os.truncate(self.top / segment["tier"] / segment["path"], 10)

    def round(self) -> None:
        self.rounds += 1
        for number in range(4):
            path = self.mount / f"file{(self.rounds * 4 + number) % 40}"
            path.write_bytes(os.urandom(FILE_BYTES))
            with path.open("rb+") as file:
                os.fsync(file.fileno())
            file_descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file_descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file_descriptor)
            path.read_bytes()
            expect(not (self.mount / f"missing{self.rounds}-{number}").exists(), "a name that was never made")
        os.listdir(self.mount)
        self.call("put", f"run/{self.rounds % 4}", "in")
        self.call("get", f"run/{self.rounds % 4}", "out")
        # The policy moves others meanwhile; this one moves whatever it decides.
        self.call("migrate", f"run/{self.rounds % 4}", "--to", "slow")
        self.call("get", "lost", "out", fails=True)
        self.call("get", "none", "out", fails=True)


def drawn(panel: dict, found: list[list[dict]]) -> str:
    """A panel as HTML, where the dashboard has it."""
    place = panel["gridPos"]
    style = f"grid-column: {place['x'] + 1} / span {place['w']}; grid-row: {place['y'] + 1} / span {place['h']}"
    if panel["type"] == "row":
        return f'<section class="row" style="{style}">{html.escape(panel["title"])}</section>'
    series = [(target, one) for target, answer in zip(panel["targets"], found, strict=True) for one in answer]
    unit = panel["fieldConfig"]["defaults"].get("unit", "")
    head = f"<h2>{html.escape(panel['title'])} <small>({html.escape(unit)})</small></h2>"
    if panel["type"] == "stat":
        body = f'<b class="stat">{figure(series[0][1])}</b>'
    elif panel["type"] in ("table", "bargauge"):
        rows = (f"<tr><td>{html.escape(name(*one))}</td><td>{figure(one[1])}</td></tr>" for one in series)
        body = f"<table>{''.join(rows)}</table>"
    else:
        body = lines(series)
    return f'<section style="{style}">{head}{body}</section>'


def name(target: dict, series: dict) -> str:
    labels = {key: value for key, value in series["metric"].items() if key != "__name__"}
    text = target.get("legendFormat") or ", ".join(f"{key}={value}" for key, value in labels.items())
    for key, value in labels.items():
        text = text.replace("{{" + key + "}}", value)
    return text


def figure(series: dict) -> str:
    return f"{float(points(series)[-1][1]):.4g}"


def lines(series: list[tuple[dict, dict]]) -> str:
    """All series over time as lines, with their last values; those of a heatmap are the rates of its buckets."""
    every = [(when, float(value)) for _, one in series for when, value in points(one) if value not in ("NaN", "+Inf", "-Inf")]
    first, last = min(when for when, _ in every), max(when for when, _ in every)
    most = max(max(value for _, value in every), 0) or 1
    drawing, legend = [], []
    for index, (target, one) in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(
            f"{100 * (when - first) / ((last - first) or 1):.2f},{50 - 48 * float(value) / most:.2f}"
            for when, value in points(one)
            if value not in ("NaN", "+Inf", "-Inf")
        )
        drawing.append(f'<polyline points="{path}" fill="none" stroke="{colour}" vector-effect="non-scaling-stroke"/>')
        legend.append(f'<span style="color: {colour}">{html.escape(name(target, one))}: {figure(one)}</span>')
    chart = f'<svg viewBox="0 0 100 50" preserveAspectRatio="none">{"".join(drawing)}</svg>'
    return f"<small>max {most:.3g}</small>{chart}<small>{''.join(legend)}</small>"


def enough(panel: dict, answer: list[dict]) -> bool:
    """Whether a query has data, and where time is shown, enough of them to draw."""
    least = POINTS_MIN if panel["type"] in ("timeseries", "heatmap") else 1
    return any(len(points(series)) >= least for series in answer)


def photograph(board: dict, answers_of: dict[int, list[list[dict]]], pictures: Path, top: Path) -> None:
    """Draws a dashboard and keeps its page and its picture."""
    shown = list(panels(board))
    page = pictures / f"{board['uid']}.html"
    text = "".join(drawn(panel, answers_of.get(panel["id"], [])) for panel in shown)
    page.write_text(PAGE.format(title=html.escape(board["title"]), panels=text), encoding="utf-8")
    picture = page.with_suffix(".png")
    picture.unlink(missing_ok=True)
    height = 80 + ROW_PIXELS * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in shown)
    ran = subprocess.run(
        ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={top / 'browser'}",
         f"--window-size={PAGE_WIDTH},{height}", f"--screenshot={picture}", page.as_uri()],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    expect(picture.exists(), f"chromium: status {ran.returncode}: {ran.stderr[-2000:]}")
    head = picture.read_bytes()[:24]
    size = struct.unpack(">II", head[16:24])
    expect(head.startswith(b"\x89PNG") and size == (PAGE_WIDTH, height), f"{picture} is {size}")


def ask_all(prometheus: Prometheus, boards: list[dict]) -> tuple[dict[tuple[str, int], list[list[dict]]], list[str]]:
    """The answers to all queries, and which of these have none."""
    found, empty = {}, []
    for board in boards:
        for panel in panels(board):
            answered = [prometheus.ask(panel, target) for target in panel.get("targets", [])]
            found[board["uid"], panel["id"]] = answered
            empty += [
                f"{board['uid']}: {panel['title']}: {target['expr']}"
                for target, answer in zip(panel.get("targets", []), answered, strict=True)
                if not enough(panel, answer)
            ]
    return found, empty


def check(terrace: Path, program: Path, pictures: Path, top: Path) -> None:
    boards = [json.loads(path.read_text(encoding="utf-8")) for path in DASHBOARDS]
    mount = top / "mount"
    mount.mkdir()
    (top / "settings.toml").write_text(SETTINGS.format(top=top), encoding="utf-8")
    subprocess.run([terrace, "init", top / "store", "--settings", top / "settings.toml"], check=True, stdout=subprocess.DEVNULL)
    port, served, mounted = free_ports(3)
    store = f"terrace://127.0.0.1:{port}?secret=none"
    with contextlib.ExitStack() as stack:

        def start(title: str, *command: str | Path, ready) -> None:
            log = top / f"{title}.log"
            process = stack.enter_context(running(log, *command))
            wait_for(title, log, process, ready)

        with step("a server, a mount and Prometheus start"):
            start("server", terrace, "--store", top / "store", "serve", "--listen", f"127.0.0.1:{port}", "--no-secret",
                  "--metrics", f"127.0.0.1:{served}", ready=lambda: answers(f"http://127.0.0.1:{served}/metrics"))  # fmt: skip
            start("mount", terrace, "mount", "--foreground", "--metrics", f"127.0.0.1:{mounted}", store, mount,
                  ready=lambda: os.path.ismount(mount))  # fmt: skip
            prometheus = Prometheus(program, top, {"terrace-server": served, "terrace-mount": mounted})
            start("prometheus", *prometheus.command, ready=lambda: answers(f"http://127.0.0.1:{prometheus.port}/-/ready"))
        with step("each query of the dashboards returns data"):
            load = Load(terrace, store, mount, top)
            load.damage()
            end = time.monotonic() + ANSWERS_MAX_S
            while True:
                load.round()
                found, empty = ask_all(prometheus, boards)
                if not empty or time.monotonic() > end:
                    break
            count = sum(len(answered) for answered in found.values())
            expect(not empty, "without data:\n" + "\n".join(empty))
            print(f" ({count} queries, {load.rounds} rounds of load)", end="")
        with step("the panels are drawn"):
            for board in boards:
                answers_of = {panel: answered for (uid, panel), answered in found.items() if uid == board["uid"]}
                photograph(board, answers_of, pictures, top)


def main() -> int:
    terrace, program, pictures = (Path(word).resolve() for word in sys.argv[1:4])
    bound(TIME_MAX_S)
    pictures.mkdir(parents=True, exist_ok=True)
    top = Path(tempfile.mkdtemp(prefix="terrace-dashboards-"))
    try:
        check(terrace, program, pictures, top)
    finally:
        subprocess.run(["umount", "-l", top / "mount"], stderr=subprocess.DEVNULL)
        shutil.rmtree(top, ignore_errors=True)
    print(f"dashboards_test: everything passed; pictures are in {pictures}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
