# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What several versions of fio print, good and bad, is read right or refused."""

import json
from collections import Counter
from typing import Any

import pytest

from terrace_lab.errors import ParseError
from terrace_lab.workloads.distribution import ECDF_STEPS_MAX
from terrace_lab.workloads.fio_output import Side, latencies, parse


def job(**more: Any) -> dict[str, Any]:
    side = {"io_bytes": 4096, "io_kbytes": 4, "total_ios": 1}
    return {"jobname": "fio", "error": 0, "read": {}, "write": side, **more}


def text(*jobs: dict[str, Any]) -> str:
    return json.dumps({"fio version": "fio-3.33", "jobs": jobs}, indent=2)


def test_lines_before_and_behind_the_object_are_passed_over() -> None:
    output = parse(
        "fio : Saving output of prerun in fio.prerun.txt\n"
        "{not json} a warning\n"
        "fio: this platform does not support {x}\n" + text(job()) + "\nfio: end\n"
    )
    assert (output.write.bytes_done, output.write.operations) == (4096, 1)
    assert output.version == "fio-3.33"


def test_the_last_of_several_objects_counts() -> None:
    half = job(write={"io_bytes": 1024, "io_kbytes": 1, "total_ios": 1})
    assert parse(text(half) + "\n" + text(job())).write.bytes_done == 4096


def test_jobs_add_up_where_they_are_not_one_group() -> None:
    output = parse(text(job(), job(read={"io_bytes": 10, "io_kbytes": 0, "total_ios": 2})))
    assert (output.write.bytes_done, output.read.bytes_done, output.read.operations) == (
        8192,
        10,
        2,
    )


def test_bytes_of_an_old_version_are_in_kib() -> None:
    assert parse(text(job(write={"io_kbytes": 4, "total_ios": 1}))).write.bytes_done == 4096


def test_floats_that_are_none_do_not_spoil_the_rest() -> None:
    broken = text(job()).replace('"error": 0', '"error": 0, "usr_cpu": -nan, "list": [inf,nan]')
    assert parse(broken).write.operations == 1


def test_a_missing_direction_is_nothing_done() -> None:
    one = job()
    del one["read"]
    assert parse(text(one)).read.bytes_done == 0


def test_errors_and_lost_requests_are_told() -> None:
    side = {"io_bytes": 0, "io_kbytes": 0, "total_ios": 0, "short_ios": 2, "drop_ios": 1}
    output = parse(text(job(error=28, write=side)))
    assert output.errors == [28]
    assert output.notes == ["fio counted 2 short writes", "fio counted 1 dropped writes"]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "no JSON object with jobs"),
        ("fio: pid=1, err=28/file:filesetup.c", "no JSON object with jobs begins='fio: pid=1"),
        ('{"fio version": "fio-3.33", "jobs": []}', "no JSON object with jobs"),
        (text(job())[:-20], "no JSON object with jobs"),
        ('{"jobs": {"write": 1}}', "`jobs` is not a list of objects"),
        (text(job(write=[])).replace('"write": []', '"write": [1]'), "`write` is not an object"),
        (text(job(write={"bw": 10})), "no bytes of write in it"),
        (text(job(write={"io_kbytes": 4})), "write has no number total_ios=None"),
        (text(job(write={"io_kbytes": -4, "total_ios": 1})), "no number io_kbytes=-4"),
    ],
)
def test_what_is_no_result_is_refused(output: str, message: str) -> None:
    with pytest.raises(ParseError, match=f"cannot read the output of fio: .*{message}"):
        parse(output)


def test_histograms_of_clients_add_up() -> None:
    sides = [Side(0, 3, Counter({1000: 1, 3000: 2})), Side(0, 1, Counter({2000: 1})), Side(0, 0)]
    percentiles, steps = latencies(sides)
    assert percentiles["p50"] == 2e-6
    assert percentiles["p99"] == 3e-6
    assert steps == [(1e-6, 0.25), (2e-6, 0.5), (3e-6, 1.0)]


def test_percentiles_of_one_client_are_taken_but_never_mixed() -> None:
    side = Side(0, 9, percentiles={50.0: 1000, 99.0: 5000, 99.5: 6000})
    percentiles, steps = latencies([side])
    assert percentiles == {"p50": 1e-6, "p99": 5e-6}
    assert steps == [(1e-6, 0.5), (5e-6, 0.99), (6e-6, 0.995)]
    assert latencies([side, side]) == ({}, [])


def test_a_long_distribution_is_thinned_and_keeps_its_end() -> None:
    bins = Counter(range(1, 5001))
    _, steps = latencies([Side(0, 5000, bins)])
    assert len(steps) == ECDF_STEPS_MAX
    assert steps[-1] == (5e-6, 1.0)
    assert steps[0] == (25e-9, 0.005)
