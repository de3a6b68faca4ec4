# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How figures are made from what was recorded; docs/lab-numbers.md defines each of them."""
