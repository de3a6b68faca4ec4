# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Lines survive crashes, and samples survive being written."""

from pathlib import Path

from terrace_lab.records import (
    Kind,
    LinesWriter,
    Quality,
    Sample,
    Torn,
    now,
    read_lines,
    write_json,
)


def test_a_sample_is_read_as_it_was_written() -> None:
    for kind in Kind:
        for value, quality in ((12.5, Quality.OK), (None, Quality.NAN)):
            sample = Sample(1, 2, 3, "p1", "s1", kind, value, quality, "lmg")
            assert Sample.from_json(sample.to_json()) == sample


def test_a_torn_last_line_costs_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    with LinesWriter(path) as lines:
        lines.write({"n": 1})
        lines.write({"n": 2})
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with LinesWriter(path) as lines:
            lines.write({"n": 3})
        torn: list[Torn] = []
        numbers = [line["n"] for line in read_lines(path, torn)]
        before = whole[:cut].count(b"\n") + (whole[:cut].endswith(b"}"))
        assert numbers == [*range(1, before + 1), 3], cut
        is_torn = bool(whole[:cut]) and whole[cut - 1 : cut] not in (b"\n", b"}")
        assert len(torn) == is_torn, cut


def test_a_json_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "below" / "one.json"
    write_json(path, {"a": 1})
    before = path.read_text()
    try:
        write_json(path, {"a": float("nan")})
    except ValueError:
        pass
    else:
        raise AssertionError("NaN is no JSON")
    assert path.read_text() == before


def test_both_clocks_run() -> None:
    first, second = now(), now()
    assert second.raw_ns > first.raw_ns
    assert second.real_ns > 10**18
