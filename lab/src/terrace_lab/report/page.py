# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Writes the report: figures and their data as files, and one HTML page that needs none of them."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import jinja2
from markupsafe import Markup

from terrace_lab.errors import LabError
from terrace_lab.report import tables
from terrace_lab.report.sections import Section, sections
from terrace_lab.report.sheet import Figure, drawing
from terrace_lab.report.source import Source, load
from terrace_lab.report.units import duration

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PDF_SECONDS = 300.0
ROWS_SHOWN = 5000
ROWS_PRINTED = 40
"""Of one table: a thousand rows on paper help nobody, and take minutes to set."""


def write_report(run: Path, *, pdf: bool) -> Path:
    """Writes `report/` of a run directory anew and returns the path of its `index.html`.

    The same record gives the same bytes. With `pdf` it is also printed to `report.pdf`.

    # Errors

    LabError where the run has no summary that can be read, or nothing here can print a PDF.
    """
    source = load(run)
    with drawing():
        parts, absent = sections(source)
    directory = run / "report"
    folder = directory / "fig"
    if folder.exists():
        # A figure of an earlier report that is no more would look like one of this.
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for figure in (figure for part in parts for figure in part.figures):
        _write(folder / f"{figure.name}.svg", figure.svg)
        _write(folder / f"{figure.name}.csv", figure.csv)
    index = directory / "index.html"
    _write(index, render(source, parts, absent, is_printed=False))
    if pdf:
        _print(render(source, parts, absent, is_printed=True), directory)
    return index


def render(source: Source, parts: list[Section], absent: list[str], *, is_printed: bool) -> str:
    """The page; to be printed it has no script and nothing folded."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (HERE / "slider.js.html").read_text(encoding="utf-8")
    # The hash is of what stands between the tags, which no text of a run can get into.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    summary = source.summary
    return environment.get_template("index.html").render(
        summary=summary,
        parts=parts,
        absent=absent,
        overview=tables.overview(source),
        meters=tables.meters(source),
        style=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=digest,
        is_printed=is_printed,
        rows_shown=ROWS_PRINTED if is_printed else ROWS_SHOWN,
        begin=_moment(summary.begin_ns),
        end=_moment(summary.end_ns) if summary.end_ns else None,
        lasted=duration((summary.end_ns - summary.begin_ns) / 1e9) if summary.end_ns else None,
        svg=lambda figure: Markup(figure.inline()),
        data_uri=_data_uri,
    )


def _moment(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _data_uri(figure: Figure) -> str:
    content = figure.csv.encode("utf-8", "replace")
    return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(content).decode()}"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="replace", newline="\n")


def _print(page: str, directory: Path) -> None:
    target = directory / "report.pdf"
    target.unlink(missing_ok=True)
    # A browser takes seconds for what weasyprint takes minutes for, with many figures.
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is not None:
        _print_by_browser(browser, page, target)
        return
    try:
        import weasyprint
    except (ImportError, OSError) as error:
        # OSError: the package is there, the libraries that it draws with are not.
        raise LabError(
            "cannot print the report: neither chromium nor weasyprint is here"
        ) from error
    document = weasyprint.HTML(string=page, url_fetcher=_fetch_nothing)
    document.write_pdf(target)


def _fetch_nothing(url: str, *_: object, **__: object) -> dict[str, object]:
    raise ValueError(f"a report loads nothing url={url}")


def _print_by_browser(browser: str, page: str, target: Path) -> None:
    source = target.with_name("print.html")
    _write(source, page)
    argv = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-pdf-header-footer",
        f"--print-to-pdf={target}",
        source.resolve().as_uri(),
    ]
    try:
        ended = subprocess.run(argv, capture_output=True, timeout=PDF_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise LabError(f"cannot print the report: no end after {PDF_SECONDS:g} s") from None
    finally:
        source.unlink()
    if ended.returncode != 0 or not target.exists():
        raise LabError(f"cannot print the report: browser failed code={ended.returncode}")
