"""The ablation of AutoCoCD: what a part is worth, and nothing but that."""

from __future__ import annotations

import pytest
import torch
from cocd_paper import methods
from cocd_paper.plans import adaptive
from cocd_paper.runs import Run, Setting


def test_without_curvature_differs_from_the_whole_in_the_direction_alone() -> None:
    """Where all curvatures are the same both take the same steps: none is too short by design."""

    def losses(part: str | None, scale: list[float]) -> list[float]:
        own: dict[str, Setting] = {"compute_budget": 2}
        for run in adaptive.runs("sarcos", 0, 50):
            if part is not None and run.options.get("without") == part:
                own = {"without": part, "lr": run.options["lr"], "compute_budget": 2}
        model = torch.nn.Linear(1, 4, bias=False)
        torch.nn.init.ones_(model.weight)
        optimizer = methods.optimizer(Run("adaptive", "sarcos", "auto", "", own), model)
        weights = torch.tensor(scale)[:, None]
        return [float(optimizer.step(lambda: (weights * model.weight**2).sum())) for _ in range(30)]

    whole, flat = losses(None, [1.0] * 4), losses("curvature", [1.0] * 4)
    assert flat == pytest.approx(whole, rel=1e-3) and whole[-1] < 0.1 * whole[0]
    stretched = [100.0, 1.0, 100.0, 1.0]
    assert losses("curvature", stretched)[-1] > 2 * losses(None, stretched)[-1]
