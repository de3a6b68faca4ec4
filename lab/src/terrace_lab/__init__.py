# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Measures performance and energy of any file system, and keeps both in one record."""

__version__ = "0.1.0"
