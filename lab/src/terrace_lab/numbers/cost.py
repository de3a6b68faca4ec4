# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What capacity and rate cost, in money and in watts. None wherever a part is not known."""

from __future__ import annotations

TB = 1e12
MB = 1e6


def price_per_tb(price: float | None, usable_bytes: int | None) -> float | None:
    """Per 10^12 usable bytes."""
    return ratio(price, usable_bytes / TB if usable_bytes else None)


def price_per_mb_s(price: float | None, rate: float) -> float | None:
    """Per 10^6 bytes a second."""
    return ratio(price, rate / MB)


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def over_limit(peak_w: float | None, limit_w: float | None) -> str | None:
    """What to say where the peak is above the limit."""
    if peak_w is None or limit_w is None or peak_w <= limit_w:
        return None
    return f"peak power above the limit peak_w={peak_w:.1f} limit_w={limit_w:g}"
