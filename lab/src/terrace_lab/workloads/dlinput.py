# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Input of training: epochs of shuffled samples in batches, with a compute time for each step.

The accelerator is a sleep. What is measured is how much of it the storage lets be used.
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
NOTE = "the accelerator is a sleep: it computes nothing and its energy is in no figure"

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
    """Threads of each client that read ahead."""

    @classmethod
    def read(cls, settings: Settings) -> Parameters:
        model = settings.choice("model", tuple(MODELS), "unet3d")
        shape = MODELS[model]
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
        )
        settings.finish()
        if parameters.sample_bytes < 64:
            raise settings.error("sample_bytes", "must be at least 64")
        return parameters


def create(name: str, settings: Settings) -> DlInput:
    return DlInput(name, *parameters_table(settings))


class DlInput(Configured[Parameters]):
    """One process on each client, with threads that read ahead of a step."""

    def _read(self, settings: Settings) -> Parameters:
        return Parameters.read(settings)

    def check(self, hosts: Mapping[str, Host]) -> list[Problem]:
        return missing(hosts, "python3", "Debian package python3")

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "dlinput", **dataclasses.asdict(self._parameters)}

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
        used_s = sum(one["steps"] for one in done) * parameters.compute_s
        elapsed_s = sum(span.end.raw_ns - span.begin.raw_ns for span in spans) / 1e9
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
            notes=[NOTE],
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
        commands = [
            Command(
                ["python3", "-IS", "-", verb, _configuration(context, parameters, client)],
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


def _configuration(context: Context, parameters: Parameters, client: Client) -> str:
    return json.dumps(
        {
            **dataclasses.asdict(parameters),
            "directory": str(client.shared / "samples"),
            "seed": context.seed,
            "client": client.index,
            "clients": len(context.clients),
        }
    )
