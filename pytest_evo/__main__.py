"""``python -m pytest_evo`` is ``pytest-evo``."""

from __future__ import annotations

import sys

from pytest_evo.cli import main

if __name__ == "__main__":
    sys.exit(main())
