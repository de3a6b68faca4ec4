# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Training input by PyTorch's loader: the real one where it is, and one that has a GPU."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from clients import MakeContext

from terrace_lab import workloads
from terrace_lab.errors import PhaseFailed, SettingsError
from terrace_lab.hosts import AgentHost
from terrace_lab.settings import Settings
from terrace_lab.workloads.base import Result, Workload
from terrace_lab.workloads.dlinput import _mean
from terrace_lab.workloads.dlinput_client import POINTS_MAX, Usage

SMALL = {
    "samples": 26,
    "sample_bytes": 3000,
    "sample_sd": 0,
    "batch": 4,
    "compute_s": 0.002,
    "epochs": 2,
}
DEBIAN = "/usr/bin/python3"


def has_torch(python: str) -> bool:
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "-I", "-c", "import torch"], capture_output=True).returncode == 0


def make(**parameters: Any) -> Workload:
    table = {"kind": "dlinput", "params": {**SMALL, "loader": "torch", **parameters}}
    return workloads.create("w", Settings("workloads.w", table))


def python_at(directory: Path, **figures: object) -> str:
    """A Python with a PyTorch of these figures, or without one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    (site,) = directory.glob("lib/python3*/site-packages")
    if figures:
        text = Path(__file__).with_name("fake_torch.py").read_text(encoding="utf-8")
        made = "".join(f"{name} = {value!r}\n" for name, value in figures.items())
        (site / "torch" / "utils").mkdir(parents=True)
        (site / "torch" / "__init__.py").write_text(text + made, encoding="utf-8")
        (site / "torch" / "utils" / "data.py").write_text("from torch import DataLoader\n")
    return str(directory / "bin" / "python")


def trained(workload: Workload, context: Any) -> Result:
    workload.prepare(context)
    (phase,) = workload.phases(context)
    return workload.run(context, phase)


def check(result: Result, clients: int) -> None:
    """What holds with every loader: 26 samples are so many batches of four, twice."""
    steps = 26 // (4 * clients) * 2
    assert result.work == steps * 4 * clients
    assert result.extra["read_bytes"] == result.work * 3000
    assert 0 < result.latency_s["p50"] <= result.latency_s["p99.9"]
    points = result.over_time["accelerator_utilisation"]
    ends = [seconds for seconds, _ in points]
    assert ends == sorted(ends)
    assert all(0 <= part <= 1 for _, part in points)
    begins = [0.0, *ends]
    busy_s = sum(part * (end - begin) for begin, (end, part) in zip(begins, points, strict=False))
    if clients == 1:
        assert busy_s / ends[-1] == pytest.approx(result.extra["accelerator_utilisation"])


@pytest.mark.skipif(not has_torch(DEBIAN), reason="Debian's python3-torch is not installed")
def test_the_loader_of_pytorch_reads_all_samples(make_context: MakeContext, tmp_path: Path) -> None:
    context = make_context()
    workload = make(python=DEBIAN, workers=2)
    assert workload.check({"here": context.clients[0].host}) == []
    result = trained(workload, context)
    check(result, 1)
    assert 0 < result.extra["accelerator_utilisation"] < 1
    assert result.extra["stall_s"] > 0
    assert any("sleep" in note for note in result.notes)
    first, second, *_ = sorted(path for path in (tmp_path / "shared").rglob("*") if path.is_file())
    second.write_bytes(first.read_bytes())
    # The error of a worker reaches the record.
    with pytest.raises(PhaseFailed, match="sample 1 is not there but sample 0"):
        workload.run(context, workload.phases(context)[0])


def test_two_clients_share_an_epoch(make_context: MakeContext, tmp_path: Path) -> None:
    python = python_at(tmp_path / "python", HAS_GPU=False)
    context = make_context(2)
    result = trained(make(python=python, workers=2), context)
    check(result, 2)
    assert any("sleep" in note for note in result.notes)
    assert result.commands[0][:2] == [python, "dlinput"]


def test_nvml_says_how_busy_a_gpu_is(make_context: MakeContext, tmp_path: Path) -> None:
    python = python_at(tmp_path / "python", HAS_GPU=True, BUSY_PERCENT=40)
    result = trained(make(python=python), make_context())
    check(result, 1)
    assert result.extra["accelerator_utilisation"] == pytest.approx(0.4)
    parts = [part for _, part in result.over_time["accelerator_utilisation"]]
    assert parts == pytest.approx([0.4] * len(parts))
    assert any("NVML" in note for note in result.notes)
    assert not any("sleep" in note for note in result.notes)


def test_without_nvml_the_steps_say_so(make_context: MakeContext, tmp_path: Path) -> None:
    python = python_at(tmp_path / "python", HAS_GPU=True)
    result = trained(make(python=python), make_context())
    check(result, 1)
    (length_s, _) = result.over_time["accelerator_utilisation"][-1]
    # 26 samples are six steps, in each of two epochs.
    assert result.extra["accelerator_utilisation"] == pytest.approx(12 * 0.002 / length_s)
    assert not any("NVML" in note or "sleep" in note for note in result.notes)


def test_a_missing_torch_is_named(
    make_context: MakeContext, host: AgentHost, tmp_path: Path
) -> None:
    python = python_at(tmp_path / "python")
    workload = make(python=python)
    (problem,) = workload.check({"here": host})
    assert problem.is_fatal
    assert "cannot import torch; install the Debian package python3-torch" in problem.text
    (problem,) = make(python=str(tmp_path / "none")).check({"here": host})
    assert "none is not there; a Python with" in problem.text
    with pytest.raises(PhaseFailed, match="cannot import torch: No module named 'torch'; install"):
        trained(workload, make_context())


def test_parameters_of_the_other_loader_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"w\.params\.loader: 'dali' is none of threads, torch"):
        make(loader="dali")
    with pytest.raises(SettingsError, match=r"w\.params\.python: there is no such setting here"):
        make(loader="threads", python=DEBIAN)


def test_only_what_defines_the_work_is_compared() -> None:
    described = make(python=DEBIAN).describe()
    assert described["loader"] == "torch"
    assert described == make().describe()
    threads = make(loader="threads").describe()
    assert threads == {key: value for key, value in described.items() if key != "loader"}


def test_usage_keeps_its_sum_over_any_length() -> None:
    usage = Usage()
    for step in range(4000):
        usage.add(step * 0.25, step * 0.25 + 0.1)
    points = usage.points(1000.0)
    assert len(points) <= POINTS_MAX
    assert points[-1][0] == 1000.0
    assert all(part == pytest.approx(0.4, abs=0.05) for _, part in points)
    assert usage.busy_s() == pytest.approx(400.0)
    assert Usage().points(0.15) == [[0.1, 0.0], [0.15, 0.0]]


def test_the_mean_of_clients_is_over_those_that_train() -> None:
    assert _mean([[[1.0, 0.5], [2.0, 1.0]], [[1.0, 0.1], [1.5, 0.2]]]) == [
        (1.0, pytest.approx(0.3)),
        (1.5, pytest.approx(0.6)),
        (2.0, 1.0),
    ]
