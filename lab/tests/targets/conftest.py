# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fixtures of the tests here."""

from clients import host, make_context

__all__ = ["host", "make_context"]
