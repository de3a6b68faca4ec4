# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Its place makes the modules of this directory known to the tests below it."""
