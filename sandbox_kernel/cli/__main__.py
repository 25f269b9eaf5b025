"""``python -m sandbox_kernel.cli`` is ``jupyter sandbox``."""

from __future__ import annotations

import sys

from sandbox_kernel.cli import main

sys.exit(main())
