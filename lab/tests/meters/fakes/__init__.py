# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Instruments that are programs: they speak the real protocols and fail on demand."""
