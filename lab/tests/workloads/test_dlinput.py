# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Training input: each sample once an epoch, time spent waiting, and checked content."""

import json
from pathlib import Path
from typing import Any

import pytest
from clients import MakeContext

from terrace_lab import workloads
from terrace_lab.errors import PhaseFailed, SettingsError
from terrace_lab.settings import Settings
from terrace_lab.workloads.base import Workload
from terrace_lab.workloads.dlinput_client import DataSet, batches, bin_of

SMALL = {"samples": 26, "sample_bytes": 3000, "batch": 4, "compute_s": 0.002, "epochs": 2}


def make(**parameters: Any) -> Workload:
    table = {"kind": "dlinput", "params": parameters}
    return workloads.create("w", Settings("workloads.w", table))


def test_epochs_are_read_and_the_waiting_is_told(make_context: MakeContext, tmp_path: Path) -> None:
    context = make_context(2)
    workload = make(**SMALL, samples_per_file=10, workers=3)
    workload.prepare(context)
    files = [path for path in (tmp_path / "shared").rglob("*") if path.is_file()]
    assert len(files) == 3
    assert sum(file.stat().st_size for file in files) <= workload.space_bytes(2, None)
    (phase,) = workload.phases(context)
    result = workload.run(context, phase)
    # 26 samples are three batches of four for each of two clients.
    assert result.work == 3 * 4 * 2 * 2
    span = max(one.end.raw_ns - one.begin.raw_ns for one in result.spans) / 1e9
    assert span > 3 * 2 * 0.002
    assert 0 < result.extra["accelerator_utilisation"] < 1
    assert 0 < result.extra["stall_s"] < span
    assert result.extra["first_epoch_s"] < span
    assert result.extra["read_bytes"] > 0
    assert 0 < result.latency_s["p50"] <= result.latency_s["p99.9"]
    assert any("sleep" in note for note in result.notes)
    assert workload.verify(context).text.startswith("26 samples have the checksums")


def test_a_sample_that_is_another_or_cut_or_changed_is_found(
    make_context: MakeContext, tmp_path: Path
) -> None:
    context = make_context()
    workload = make(**{**SMALL, "samples": 4, "model": "resnet50", "samples_per_file": 2})
    workload.prepare(context)
    (phase,) = workload.phases(context)
    first, second = sorted(path for path in (tmp_path / "shared").rglob("*") if path.is_file())
    whole = second.read_bytes()
    second.write_bytes(first.read_bytes())
    with pytest.raises(PhaseFailed, match=r"cannot train: .*: sample [23] is not there but sample"):
        workload.run(context, phase)
    second.write_bytes(whole[:-10])
    with pytest.raises(PhaseFailed, match="sample 3 ends after 2990 of 3000 bytes"):
        workload.run(context, phase)
    second.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    verdict = workload.verify(context)
    assert not verdict.is_good
    assert "sample 3 has checksum" in verdict.text
    second.unlink()
    with pytest.raises(PhaseFailed, match="No such file or directory"):
        workload.run(context, phase)


def test_clients_share_an_epoch_and_orders_differ() -> None:
    shape = {"samples": 26, "batch": 4, "clients": 2, "seed": 7}

    def epoch(client: int, number: int) -> list[int]:
        made = batches({**shape, "client": client}, number)
        assert [len(batch) for batch in made] == [4, 4, 4]
        return [sample for batch in made for sample in batch]

    both = epoch(0, 0) + epoch(1, 0)
    assert len(set(both)) == 24
    assert epoch(0, 0) != epoch(0, 1)
    assert epoch(0, 0) == epoch(0, 0)


def test_sizes_follow_the_seed_and_the_shape(tmp_path: Path) -> None:
    shape = {
        "directory": str(tmp_path),
        "samples": 400,
        "samples_per_file": 100,
        "sample_bytes": 1000,
        "sample_sd": 200,
        "seed": 1,
    }
    data = DataSet(shape)
    assert abs(sum(data.sizes) / 400 - 1000) < 50
    assert data.sizes == DataSet(shape).sizes != DataSet({**shape, "seed": 2}).sizes
    assert data.offsets[100] == 0
    assert data.offsets[102] == data.sizes[100] + data.sizes[101]
    assert len(data.content(5)) == data.sizes[5]
    assert data.content(5)[24:] != data.content(6)[24:]


def test_bins_are_near_and_in_order() -> None:
    values = [bin_of(ns) for ns in range(1, 100_000, 7)]
    assert values == sorted(values)
    assert all(0 <= ns - bin_of(ns) <= ns / 32 for ns in range(1, 100_000, 7))


def test_a_model_is_scaled_by_the_size_of_its_samples() -> None:
    described = make(model="unet3d", sample_bytes="143164").describe()
    assert described["sample_sd"] == 66739
    assert make(model="cosmoflow").describe()["workers"] == 4
    json.dumps(described)


def test_too_few_samples_are_refused(make_context: MakeContext) -> None:
    message = "a batch of each client is more than the data set samples=7 batch=4 clients=2"
    with pytest.raises(PhaseFailed, match=message):
        make(**{**SMALL, "samples": 7}).prepare(make_context(2))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"model": "gpt"}, "model: 'gpt' is none of unet3d, resnet50, cosmoflow"),
        ({"sample_bytes": 10}, "sample_bytes: must be at least 64"),
        ({"epochs": 0}, "epochs: must be a whole number of at least 1, not 0"),
        ({"epoch": 1}, "epoch: there is no such setting here"),
    ],
)
def test_wrong_parameters_say_where(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=f"workloads.w.params.{message}"):
        make(**parameters)
