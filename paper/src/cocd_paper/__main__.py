"""``python -m cocd_paper`` is the command ``cocd-paper``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
