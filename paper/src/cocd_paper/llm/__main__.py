"""``python -m cocd_paper.llm`` is ``cocd-paper llm``."""

import sys

from ..cli import main

sys.exit(main(["llm", *sys.argv[1:]]))
