"""Settings chosen on validation rows (``cocd-paper reproduce tune``), for each task and method.

A method that is not here has not been tuned on that task, and plans leave it out.
"""

from __future__ import annotations

from ..runs import Setting

TUNED: dict[str, dict[str, dict[str, Setting]]] = {
    "sarcos": {
        "bccd": {"eps": 0.3, "lr": 0.2},
        "bccd-float64": {"dtype": "float64", "eps": 1e-6},
        "bccd-wide": {"compute_budget": 256, "eps": 0.1, "lr": 0.05},
        "cocd": {"decay": 0.5, "eps": 1.0, "lr": 0.1},
        "cocd-budget": {"compute_budget": 16, "decay": 0.9, "eps": 1.0, "lr": 0.02},
        "cocd-wide": {"compute_budget": 256, "decay": 0.9, "eps": 0.3, "lr": 0.01},
        "random": {"eps": 0.1, "lr": 0.2},
        "spsa": {"eps": 0.01, "lr": 1e-3},
        "zosgd": {"eps": 1e-3, "lr": 1e-3},
    },
    "mnist": {
        "bccd": {"eps": 0.1, "lr": 0.5},
        "bccd-float64": {"dtype": "float64", "eps": 1e-6},
        "cocd": {"decay": 0.9, "eps": 0.1, "lr": 0.1},
        "random": {"eps": 0.1, "lr": 4.0},
    },
    "cifar10": {
        "bccd": {"eps": 0.1, "lr": 0.3},
        "bccd-float64": {"dtype": "float64", "eps": 1e-6},  # chosen after one epoch
        "cocd": {"decay": 0.5, "eps": 0.1, "lr": 0.15},
        "random": {"eps": 0.1, "lr": 0.6},
    },
}
