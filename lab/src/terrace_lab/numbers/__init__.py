# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How figures are made from what was recorded; docs/reference/lab-numbers.md defines each one."""
