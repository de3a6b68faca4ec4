# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Experiments that come with the lab, as files."""
