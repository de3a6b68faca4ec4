# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes figures of a run: a pure function of its directory, that can be repeated anywhere."""

from terrace_lab.analyse.merge import merge
from terrace_lab.analyse.run import analyse, summarise

__all__ = ["analyse", "merge", "summarise"]
