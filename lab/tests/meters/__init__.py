# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Meters, each against what speaks its protocol."""
