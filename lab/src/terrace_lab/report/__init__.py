# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The report of a run: one HTML page, made from `summary.json` and the tables beside it alone."""

from terrace_lab.report.page import write_report

__all__ = ["write_report"]
