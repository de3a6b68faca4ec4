# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Carries out an experiment; may be killed at any time and resumed."""
