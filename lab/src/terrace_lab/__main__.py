# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`python -m terrace_lab` is `terrace-lab`."""

import sys

from terrace_lab.cli import main

sys.exit(main())
