# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Input of training: epochs of shuffled samples in batches, with a compute time for each step.

Threads of the lab, or the `DataLoader` of PyTorch, read ahead. The accelerator is a sleep, or, with
PyTorch, a GPU where there is one. What is measured is how much of it the storage lets be used.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from terrace_lab.errors import ParseError, PhaseFailed
from terrace_lab.hosts import Command, Host
from terrace_lab.records import Stamp
from terrace_lab.settings import Settings
from terrace_lab.workloads.base import (
    Client,
    Context,
    Direction,
    PhaseSpec,
    Problem,
    Result,
    Span,
    Verdict,
)
from terrace_lab.workloads.configured import Configured, missing
from terrace_lab.workloads.distribution import of_bins
from terrace_lab.workloads.launch import launch, parameters_table

TIMEOUT_SECONDS = 24 * 3600.0
NOTES = {
    "sleep": "the accelerator is a sleep: it computes nothing and its energy is in no figure",
    "gpu": "the accelerator is a GPU, which multiplies matrices for the time of each step",
}
NOTE_NVML = "the accelerator's utilisation is what NVML reported"
THREADS, TORCH = LOADERS = ("threads", "torch")
TORCH_HELP = "the Debian package python3-torch, or torch from PyPI"

# Shapes of MLPerf Storage for the H100 (github.com/mlcommons/storage, storage-conf/workload:
# unet3d_h100.yaml of 66b0b10, resnet50_h100.yaml of 8177275, cosmoflow_h100.yaml of 88e4f59).
MODELS: dict[str, dict[str, Any]] = {
    "unet3d": {
        "samples": 168,
        "sample_bytes": 146_600_628,
        "sample_sd": 68_341_808,
        "samples_per_file": 1,
        "batch": 4,
        "compute_s": 0.188,
        "workers": 4,
    },
    "resnet50": {
        "samples": 1024 * 1251,
        "sample_bytes": 114_660,
        "sample_sd": 0,
        "samples_per_file": 1251,
        "batch": 400,
        "compute_s": 0.224,
        "workers": 8,
    },
    "cosmoflow": {
        "samples": 524_288,
        "sample_bytes": 2_828_486,
        "sample_sd": 71_311,
        "samples_per_file": 1,
        "batch": 1,
        "compute_s": 0.0035,
        "workers": 4,
    },
}


@dataclass(frozen=True, slots=True)
class Parameters:
    samples: int
    """Of the data set, which all clients share."""
    sample_bytes: int
    sample_sd: int
    """Standard deviation of their sizes; scaled with the mean where that is set by itself."""
    samples_per_file: int
    batch: int
    """Samples of one step of one client."""
    compute_s: float
    epochs: int
    workers: int
    """Threads, or processes of PyTorch, of each client that read ahead."""
    loader: str
    """Which reads the samples: `LOADERS`."""
    python: str
    """The program whose PyTorch is used."""

    @classmethod
    def read(cls, settings: Settings) -> Parameters:
        model = settings.choice("model", tuple(MODELS), "unet3d")
        shape = MODELS[model]
        loader = settings.choice("loader", LOADERS, THREADS)
        mean = settings.bytes("sample_bytes", shape["sample_bytes"])
        spread = shape["sample_sd"] * mean // shape["sample_bytes"]
        parameters = cls(
            samples=settings.integer("samples", shape["samples"], least=1),
            sample_bytes=mean,
            sample_sd=settings.bytes("sample_sd", spread),
            samples_per_file=settings.integer(
                "samples_per_file", shape["samples_per_file"], least=1
            ),
            batch=settings.integer("batch", shape["batch"], least=1),
            compute_s=settings.seconds("compute_s", shape["compute_s"]),
            epochs=settings.integer("epochs", 3, least=1),
            workers=settings.integer("workers", shape["workers"], least=1),
            loader=loader,
            python=settings.text("python", "python3") if loader == TORCH else "python3",
        )
        settings.finish()
        if parameters.sample_bytes < 64:
            raise settings.error("sample_bytes", "must be at least 64")
        return parameters


def create(name: str, settings: Settings) -> DlInput:
    return DlInput(name, *parameters_table(settings))


class DlInput(Configured[Parameters]):
    """One process on each client, with threads or processes that read ahead of a step."""

    def _read(self, settings: Settings) -> Parameters:
        return Parameters.read(settings)

    def check(self, hosts: Mapping[str, Host]) -> list[Problem]:
        found = missing(hosts, "python3", "Debian package python3")
        if found or self._parameters.loader != TORCH:
            return found
        python = self._parameters.python
        found = missing(hosts, python, f"a Python with {TORCH_HELP}")
        if found:
            return found
        return [
            Problem(
                host.name,
                f"{python} cannot import torch; install {TORCH_HELP}: "
                f"{ended.stderr.strip().rpartition(chr(10))[2]}",
            )
            for host in hosts.values()
            if (ended := host.run(Command([python, "-I", "-c", "import torch"]))).code != 0
        ]

    def describe(self) -> Mapping[str, Any]:
        values = dataclasses.asdict(self._parameters)
        del values["python"]
        if self._parameters.loader == THREADS:
            # Runs of versions that had no other compare with those of this one.
            del values["loader"]
        return {"kind": "dlinput", **values}

    def space_bytes(self, clients: int, bytes_per_client: int | None) -> int:
        one = self._parameters
        # Sizes are drawn: six deviations of their sum above the mean, and what is cut at the
        # bottom for wide distributions.
        spread = 6 * one.sample_sd * one.samples**0.5 + 0.1 * one.sample_sd * one.samples
        return int(one.samples * one.sample_bytes + spread)

    def prepare(self, context: Context) -> None:
        """Writes the data set, each client its share of the files."""
        parameters = self._parameters
        if parameters.samples < parameters.batch * len(context.clients):
            raise PhaseFailed(
                "cannot train: a batch of each client is more than the data set "
                f"samples={parameters.samples} batch={parameters.batch} "
                f"clients={len(context.clients)}"
            )
        self._run(context, "write", "layout")

    def phases(self, context: Context) -> Sequence[PhaseSpec]:
        return [PhaseSpec("train", "samples", Direction.READ)]

    def run(self, context: Context, phase: PhaseSpec) -> Result:
        parameters = self._parameters
        commands, done = self._run(context, "train", phase.name)
        count = len(context.clients)
        steps = parameters.samples // (parameters.batch * count)
        expected = steps * parameters.batch * parameters.epochs
        bins: Counter[int] = Counter()
        for client, one in zip(context.clients, done, strict=True):
            if one["samples"] != expected:
                raise PhaseFailed(
                    f"cannot train: not all samples were read client={client.index} "
                    f"expected={expected} read={one['samples']}"
                )
            bins.update({int(ns): number for ns, number in one["bins"].items()})
        percentiles, ecdf = of_bins(bins)
        spans = [
            Span(client.host.name, Stamp(*one["begin"]), Stamp(*one["end"]))
            for client, one in zip(context.clients, done, strict=True)
        ]
        used_s = sum(one["busy_s"] for one in done)
        elapsed_s = sum(one["seconds"] for one in done)
        epochs = [epoch for one in done for epoch in one["epochs"]]
        return Result(
            work=float(sum(one["samples"] for one in done)),
            spans=spans,
            latency_s=percentiles,
            latency_ecdf=ecdf,
            commands=[
                list(command.argv[:1]) + ["dlinput", *command.argv[3:]] for command in commands
            ],
            extra={
                # Without a compute time there is no accelerator to be used.
                "accelerator_utilisation": used_s / elapsed_s,
                "stall_s": sum(epoch["stall_s"] for epoch in epochs) / count,
                "first_epoch_s": max(one["epochs"][0]["seconds"] for one in done),
                "read_bytes": float(sum(one["bytes"] for one in done)),
            },
            notes=_notes(done),
            over_time={"accelerator_utilisation": _mean([one["busy"] for one in done])},
        )

    def verify(self, context: Context) -> Verdict:
        try:
            _, done = self._run(context, "check", "verify")
        except PhaseFailed as error:
            return Verdict(False, str(error))
        samples = sum(one["samples"] for one in done)
        return Verdict(True, f"{samples} samples have the checksums that they were written with")

    def _run(
        self, context: Context, verb: str, label: str
    ) -> tuple[list[Command], list[dict[str, Any]]]:
        """The same verb on all clients, and what each printed."""
        package = importlib.resources.files("terrace_lab.workloads")
        source = package.joinpath("dlinput_client.py").read_bytes()
        parameters = self._parameters
        start = ["python3", "-IS"]
        if verb == "train" and parameters.loader == TORCH:
            # PyTorch is among the site packages.
            start = [parameters.python, "-I"]
        commands = [
            Command(
                [*start, "-", verb, _configuration(context, parameters, client)],
                # Not as a file: nothing of it stays on the host.
                stdin=source,
                timeout_s=TIMEOUT_SECONDS,
            )
            for client in context.clients
        ]
        done = []
        for one in launch(context, label, commands):
            try:
                done.append(json.loads(one.stdout))
            except ValueError:
                raise ParseError(
                    f"cannot read the output of dlinput: it is no JSON begins={one.stdout[:80]!r}"
                ) from None
        return commands, done


def _notes(done: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the accelerators of the clients were, and who says how busy they were."""
    notes = [NOTES[kind] for kind in sorted({one["accelerator"] for one in done})]
    if any(one["busy_from"] == "nvml" for one in done):
        notes.append(NOTE_NVML)
    return notes


def _mean(lines: Sequence[Sequence[Sequence[float]]]) -> list[tuple[float, float]]:
    """The mean of lines of steps, at all their ends: of those that have not ended yet."""
    places = [0] * len(lines)
    found = []
    for at in sorted({point[0] for line in lines for point in line}):
        values = []
        for index, line in enumerate(lines):
            while places[index] < len(line) and line[places[index]][0] < at:
                places[index] += 1
            if places[index] < len(line):
                values.append(line[places[index]][1])
        found.append((at, sum(values) / len(values)))
    return found


def _configuration(context: Context, parameters: Parameters, client: Client) -> str:
    before = context.clients[: client.index]
    return json.dumps(
        {
            **dataclasses.asdict(parameters),
            "directory": str(client.shared / "samples"),
            "seed": context.seed,
            "client": client.index,
            "clients": len(context.clients),
            "device": sum(one.host.name == client.host.name for one in before),
        }
    )
