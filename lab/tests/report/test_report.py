# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A report has every section, says what the summary says, and loads and runs nothing of others."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from made import make_run
from made_summaries import make_summary, write_run

from terrace_lab.analyse import analyse
from terrace_lab.errors import LabError
from terrace_lab.report import write_report
from terrace_lab.report.__main__ import main
from terrace_lab.report.source import Source, load
from terrace_lab.summary import Summary

HOSTILE = "\"><script>alert(1)</script>&'../../" + "ü字" * 90
MODELLED = "six & seven"


class Page(HTMLParser):
    """What of a page a browser would act on, and the text that a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.cells:
            self.cells[-1] += data

    def values(self, tag: str, name: str) -> list[str]:
        return [value for one, attrs in self.tags if one == tag and (value := attrs.get(name))]


@dataclass(frozen=True)
class Made:
    summary: Summary
    run: Path
    html: str
    page: Page

    def rows(self, stem: str) -> list[dict[str, str]]:
        (path,) = (self.run / "report" / "fig").glob(f"{stem}.csv")
        with open(path, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))


def made(directory: Path, summary: Summary, *, samples: bool = True) -> Made:
    run = write_run(directory, summary, samples=samples)
    html = write_report(run, pdf=False).read_text(encoding="utf-8")
    return Made(summary, run, html, Page(html))


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Made:
    summary = make_summary(
        targets=("nfs", HOSTILE),
        workloads=("seq", "rand4k", "linux", "unet3d", "heat"),
        clients=(1, 4),
        modelled=(HOSTILE,),
    )
    summary.repetitions[0].notes.append("backup meter pdu stood in for lmg scope=s1")
    return made(tmp_path_factory.mktemp("full"), summary)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Made:
    summary = make_summary(
        targets=("only",), workloads=("seq",), clients=(1,), repetitions=1, with_energy=False
    )
    summary.cells, summary.peaks, summary.comparisons = summary.cells[:1], [], []
    summary.repetitions = summary.repetitions[:1]
    return made(tmp_path_factory.mktemp("small"), summary, samples=False)


def test_a_full_run_has_every_section_in_order(full: Made) -> None:
    headings = re.findall(r"<h2>(\d+) [^<]+</h2>", full.html)
    # Nothing was sampled of its hosts, and no target has a baseline.
    assert headings == [str(number) for number in (*range(1, 17), 19)]
    for number in range(3, 17):
        assert re.search(rf'<figure id="f-{number:02d}-01', full.html), number
    assert full.page.text.count("What was not measured") == 1


def test_the_csv_of_throughput_is_that_of_the_summary(full: Made) -> None:
    medians = {
        (row["target"], row["panel"], int(row["clients"])): row
        for row in full.rows("04-01-seq")
        if row["what"] == "median"
    }
    cells = [cell for cell in full.summary.cells if cell.workload == "seq"]
    assert len(medians) == len(cells) == 8
    for cell in cells:
        row = medians[cell.target, cell.phase, cell.clients]
        assert float(row["value"]) == cell.rate.median
        assert cell.rate.median_interval is not None
        assert float(row["low"]) == cell.rate.median_interval.low
        peak = next(
            one
            for one in full.summary.peaks
            if (one.target, one.clients, one.direction)
            == (cell.target, cell.clients, cell.direction)
        )
        assert (float(row["tpp"]), row["binding"]) == (peak.value, peak.binding)
    published = [row for row in full.rows("04-01-seq") if row["what"] == "published"]
    assert [float(row["value"]) for row in published] == [95 * 1024.0**2]


def test_the_csv_of_energy_figures_is_that_of_the_summary(full: Made) -> None:
    efficiency = {
        (row["target"], row["panel"], row["clients"]): float(row["value"])
        for row in full.rows("09-01-seq")
        if row["what"] == "median"
    }
    products = {
        (row["target"], row["panel"], row["clients"], row["w"]): float(row["normalised"])
        for row in full.rows("10-01-seq")
    }
    boxes = {(row["target"], row["panel"], row["clients"]): row for row in full.rows("07-01-seq")}
    points = {
        (row["target"], row["panel"], row["clients"]): row
        for row in full.rows("15-01-seq")
        if row["what"] == "point"
    }
    for cell in full.summary.cells:
        if cell.workload != "seq":
            continue
        key = (cell.target, cell.phase, str(cell.clients))
        assert cell.energy is not None
        assert cell.energy.box is not None
        assert efficiency[key] == cell.energy.per_joule.median
        for weight, value in cell.energy.edp_normalised.items():
            assert products[*key, weight] == value
        assert float(boxes[key]["q3_w"]) == cell.energy.box.q3
        assert float(points[key]["watts"]) == cell.energy.mean_w.median
        assert float(points[key]["rate"]) == cell.rate.median


def test_the_sum_of_a_stack_is_that_of_its_phases(full: Made) -> None:
    rows = [row for row in full.rows("12-01-linux") if row["target"] == "nfs"]
    time = [row for row in rows if row["panel"] == "time" and row["clients"] == "4"]
    cells = [
        cell
        for cell in full.summary.cells
        if (cell.kind, cell.target, cell.clients) == ("compile", "nfs", 4)
    ]
    assert [row["phase"] for row in time] == ["unpack", "make"]
    assert [float(row["value"]) for row in time] == [cell.seconds.median for cell in cells]


def test_a_figure_for_one_checkpoint_and_sample_is_energy_by_work(full: Made) -> None:
    for stem, kind, phase in (
        ("14-02-heat-checkpoint", "pde", "checkpoint"),
        ("13-02-unet3d", "dlinput", "epoch-1"),
    ):
        (cell,) = (
            cell
            for cell in full.summary.cells
            if (cell.kind, cell.phase, cell.target, cell.clients) == (kind, phase, "nfs", 1)
        )
        (row,) = (
            row
            for row in full.rows(stem)
            if (row["what"], row["panel"], row["target"], row["clients"])
            == ("median", phase, "nfs", "1")
        )
        assert cell.energy is not None
        assert float(row["value"]) == pytest.approx(1 / cell.energy.per_joule.median)
    assert "The accelerator is a sleep" in full.html


def test_utilisation_over_time_is_drawn_where_it_was_recorded(tmp_path: Path) -> None:
    summary = make_summary(targets=("nfs", "ceph"), workloads=("unet3d",), clients=(1, 2))
    run = write_run(tmp_path / "run", summary)
    points = [[1.0, 0.25], [2.5, 0.75]]
    for cell in summary.cells:
        if cell.target == "nfs":
            below = run / "trials" / cell.trial / "rep-001"
            below.mkdir(parents=True)
            line = {"phase": cell.phase, "over_time": {"accelerator_utilisation": points}}
            (below / "phases.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    html = write_report(run, pdf=False).read_text(encoding="utf-8")
    (path,) = (run / "report" / "fig").glob("13-*-unet3d-over-time.csv")
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [
        (row["target"], row["clients"], float(row["seconds"]), float(row["part"])) for row in rows
    ] == [("nfs", clients, *point) for clients in "12" for point in points]
    assert "nfs 1 clients 55.0 %" in html


def test_hostile_names_are_text_and_nothing_else(full: Made) -> None:
    scripts = [attrs for tag, attrs in full.page.tags if tag == "script"]
    assert scripts == [{}]
    assert "<script>alert" not in full.html
    assert any(HOSTILE in text for text in full.page.cells)
    names = [path.name for path in (full.run / "report" / "fig").iterdir()]
    assert all(re.fullmatch(r"[0-9a-z-]+\.(svg|csv)", name) for name in names)
    for path in (full.run / "report" / "fig").glob("*.svg"):
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(path).iter()}
        assert not tags & {"script", "foreignObject", "a", "image", "metadata"}


def test_long_names_are_cut_in_figures_and_whole_in_tables(full: Made) -> None:
    for path in (full.run / "report" / "fig").glob("*.svg"):
        for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text"):
            assert len("".join(element.itertext())) < 80, path.name


def test_the_page_loads_nothing(full: Made) -> None:
    for tag, attrs in full.page.tags:
        assert tag not in ("link", "iframe", "object", "img", "image", "base")
        assert not attrs.get("src")
        for name in ("href", "xlink:href"):
            value = attrs.get(name)
            assert value is None or value.startswith(("#", "data:text/csv", "fig/")), value
    assert not re.search(r"url\((?!#)", full.html)
    assert "@import" not in full.html
    (policy,) = (a["content"] for t, a in full.page.tags if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_links_and_references_lead_somewhere(full: Made) -> None:
    ids = [value for _, attrs in full.page.tags if (value := attrs.get("id"))]
    assert len(ids) == len(set(ids))
    for tag, attrs in full.page.tags:
        target = attrs.get("href") or attrs.get("xlink:href") or ""
        if target.startswith("#"):
            assert target[1:] in ids, (tag, target)
        if target.startswith("fig/"):
            assert (full.run / "report" / target).is_file()
    assert set(re.findall(r"url\(#([^)]+)\)", full.html)) <= set(ids)


def test_the_stamp_is_where_a_model_was_and_nowhere_else(full: Made) -> None:
    energy = [row for row in full.rows("09-01-seq") if row["what"] == "median"]
    assert {row["target"] for row in energy if row["source"] == "MODELLED"} == {HOSTILE}
    for part in re.split(r"<tr[ >]", full.html)[1:]:
        row = part.partition("</tr>")[0]
        if "<td" in row and HOSTILE.rpartition("'")[2][:40] not in row and "MODELLED" in row:
            # Beside that system only the meter that is a model is stamped.
            assert "<td>model</td>" in row, row
    for number in ("07", "08", "09", "10", "11", "12", "15"):
        (path, *_) = sorted((full.run / "report" / "fig").glob(f"{number}-*.svg"))
        assert "MODELLED" in path.read_text(encoding="utf-8"), path.name
    for number in ("03", "04", "05", "06", "16"):
        for path in (full.run / "report" / "fig").glob(f"{number}-*.svg"):
            assert "MODELLED" not in path.read_text(encoding="utf-8"), path.name


def test_a_panel_of_measured_power_has_no_stamp(full: Made) -> None:
    rows = [row for row in full.rows("08-01-seq") if row["what"].startswith("power")]
    assert {row["source"] for row in rows if row["target"] == "nfs"} == {"measured"}
    assert {row["source"] for row in rows if row["target"] == HOSTILE} == {"MODELLED"}
    svg = (full.run / "report" / "fig" / "08-01-seq.svg").read_text(encoding="utf-8")
    assert svg.count(">MODELLED<") == 1


def test_nothing_is_stamped_where_all_was_measured(tmp_path: Path) -> None:
    result = made(tmp_path, make_summary(targets=("a", "b"), workloads=("rand4k",), clients=(1,)))
    assert "MODELLED" not in result.html
    assert "MODELLED" not in "".join(
        path.read_text(encoding="utf-8") for path in (tmp_path / "report").glob("fig/*")
    )


def test_a_repetition_with_a_backup_meter_is_hollow(full: Made) -> None:
    svg = (full.run / "report" / "fig" / "09-01-seq.svg").read_text(encoding="utf-8")
    other = (full.run / "report" / "fig" / "09-02-rand4k.svg").read_text(encoding="utf-8")
    assert "backup meter" in svg
    assert "backup meter" not in other


def test_same_record_same_bytes(tmp_path: Path) -> None:
    summary = make_summary(targets=("a", "b"), workloads=("rand4k",), clients=(1,), modelled=("b",))
    for name in ("one", "two"):
        made(tmp_path / name, summary)
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "report").rglob("*.*")}
        for name in ("one", "two")
    )
    assert first == second
    assert len(first) > 12


def test_one_cell_without_energy_is_a_report(small: Made) -> None:
    figures = re.findall(r'<figure id="f-(\d+)', small.html)
    assert figures == ["04", "06", "16"]
    headings = re.findall(r"<h2>(\d+) ", small.html)
    assert headings == ["1", "2", "4", "6", "11", "16", "19"]
    said = small.html.partition('id="not-measured"')[2].partition("</ul>")[0]
    for title in ("Component roofline", "IOPS and metadata", "Energy efficiency", "Compilation"):
        assert f"<li>{title}: " in said
    assert "power of the switch" in said
    assert "There was no meter" in small.html


def test_the_energy_of_each_host_has_a_table(full: Made, small: Made) -> None:
    (table,) = re.findall(r"<table.*?</table>", full.html.partition("Energy by host")[2], re.S)[:1]
    (head,) = re.findall(r"<thead>.*?</thead>", table, re.S)
    assert head.index("s1") < head.index("switch")
    assert "Energy by host" not in small.html


def test_a_figure_of_an_earlier_report_is_gone(small: Made) -> None:
    old = small.run / "report" / "fig" / "99-01-old.svg"
    old.write_text("<svg/>")
    write_report(small.run, pdf=False)
    assert not old.exists()


def test_what_the_analyser_writes_is_drawn(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", clients=(1,), repetitions=2)
    summary = analyse(run)
    html = write_report(run, pdf=False).read_text(encoding="utf-8")
    headings = re.findall(r"<h2>(\d+) ", html)
    assert headings == ["1", "2", "3", "4", "6", "7", "8", "9", "10", "11", "15", "16", "19"]
    drawn = (run / "report" / "fig" / "09-01-seq.csv").read_text(encoding="utf-8")
    for cell in summary.cells:
        if cell.energy and cell.role == "work":
            assert repr(cell.energy.per_joule.median) in drawn


def test_samples_of_a_backup_are_not_mixed_with_those_it_backs_up(tmp_path: Path) -> None:
    summary = make_summary(targets=("a",), workloads=("rand4k",), clients=(1,))
    summary.experiment["meters"] = {"pdu": {"backup_for": "lmg"}}
    source = load(write_run(tmp_path, summary))
    one = source.samples[0]
    stand_in = one._replace(meter="pdu")
    assert source.without_stand_ins([one, stand_in]) == [one]
    lost = one._replace(watts=None)
    assert source.without_stand_ins([lost, stand_in]) == [lost, stand_in]


def test_a_run_without_a_summary_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LabError, match="cannot read the summary: No such file"):
        write_report(tmp_path, pdf=False)
    (tmp_path / "summary.json").write_text('{"schema": 99}')
    assert main([str(tmp_path)]) == 1
    assert "schema 99 is not 1" in capsys.readouterr().err


def test_a_torn_line_of_the_journal_is_counted(full: Made) -> None:
    assert "1 lines are torn." in full.html


def test_a_pdf_is_printed_without_the_script(small: Made) -> None:
    assert main([str(small.run), "--pdf"]) == 0
    pdf = small.run / "report" / "report.pdf"
    assert pdf.read_bytes().startswith(b"%PDF-")


def test_targets_differ_without_colour() -> None:
    summary = make_summary(
        targets=[f"t{index}" for index in range(8)], workloads=("seq",), clients=(1,)
    )
    looks = Source(summary).looks
    found = [looks.look(series) for series in looks.series]
    assert len({one.hatch for one in found}) == 8
    assert len({one.marker for one in found}) == 8
    assert len({one.colour for one in found}) == 8
    assert len({str(one.line) for one in found}) == 8


def test_names_that_are_cut_to_the_same_stay_apart() -> None:
    names = [f"a-name-that-is-long-{middle}-and-ends-the-same" for middle in ("one", "two")]
    looks = Source(make_summary(targets=names, workloads=("seq",), clients=(1,))).looks
    labels = [looks.label(series) for series in looks.series]
    assert len(set(labels)) == 2
    assert max(map(len, labels)) <= 30
