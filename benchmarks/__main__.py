"""``python benchmarks SUBJECT``, from the repository's root; needs no installation."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.command import main

if __name__ == "__main__":
    sys.exit(main())
