# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Drivers of power meters, and the processes that record what they deliver."""

from terrace_lab.meters.registry import create, kinds
from terrace_lab.meters.trial import self_test

__all__ = ["create", "kinds", "self_test"]
