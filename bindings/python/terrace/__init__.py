# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Terrace from Python: `terrace.policy` is for policies that decide what lives where.

`terrace.host` is what a store runs them with."""
