# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What of nvidia-ml-py a driver of power uses, without an accelerator."""

from __future__ import annotations

import types


class NVMLError(Exception):
    """As the library raises it."""


class FakeNvml(types.ModuleType):
    """Stands in for the module `pynvml`; each reading of energy is 5 J more than the one before."""

    NVMLError = NVMLError

    def __init__(self, *, has_counter: bool = True) -> None:
        super().__init__("pynvml")
        self.has_counter = has_counter
        self.is_lost = False
        self.energy_mj = 1000
        self.open = 0

    def _look(self) -> None:
        if self.is_lost:
            raise NVMLError("GPU is lost")

    def nvmlInit(self) -> None:  # noqa: N802 - names of the library
        self._look()
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1
        self._look()

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        if index > 1:
            raise NVMLError("Invalid Argument")
        return f"handle{index}"

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.1"

    def nvmlDeviceGetTotalEnergyConsumption(self, _: str) -> int:  # noqa: N802
        self._look()
        if not self.has_counter:
            raise NVMLError("Not Supported")
        self.energy_mj += 5000
        return self.energy_mj

    def nvmlDeviceGetPowerUsage(self, _: str) -> int:  # noqa: N802
        self._look()
        return 70_500
