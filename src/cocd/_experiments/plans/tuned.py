"""Settings chosen on validation rows (``cocd reproduce tune``), for each task and method.

A method that is not here has not been tuned on that task, and plans leave it out.
"""

from __future__ import annotations

from ..runs import Setting

TUNED: dict[str, dict[str, dict[str, Setting]]] = {
    "sarcos": {},
    "mnist": {},
    "cifar10": {},
}
