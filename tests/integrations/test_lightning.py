"""Lightning: manual optimisation, schedulers, checkpoints, and estimators."""

import pytest
import torch
from helpers import frozen
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

import cocd
from cocd import baselines

lightning = pytest.importorskip("lightning")
from cocd.integrations.lightning import Forward  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers",
    "ignore:.*isinstance.treespec, LeafSpec.",
    "ignore:The number of training batches",
    "ignore:You are trying to `self.log",
    "ignore:You're resuming from a checkpoint",
    "ignore:Checkpoint directory",
    "ignore:.*torch.jit",
)


class Model(Forward, lightning.LightningModule):
    def __init__(self, method):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        self.method = method

    def loss(self, batch):
        x, y = batch
        return mse_loss(self.layers(x), y)

    def configure_optimizers(self):
        if self.method == "MeZO":
            optimizer = baselines.MeZO(self.parameters(), lr=0.05)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
            return [optimizer], [scheduler]
        if self.method == "AutoCoCD":
            return cocd.AutoCoCD(self.parameters())
        self.gradient = cocd.CoherentGradient(self.parameters(), eps=0.1, compute_budget=8)
        return torch.optim.AdamW(self.parameters(), lr=0.05)


def batches():
    x = torch.randn(24, 3, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=6)


def fit(model, folder, epochs, checkpoint=None):
    trainer = lightning.Trainer(
        default_root_dir=folder,
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.fit(model, batches(), ckpt_path=checkpoint, weights_only=False)
    return trainer


@pytest.mark.parametrize("method", ["MeZO", "AutoCoCD", "CoherentGradient"])
def test_run_resumed_from_a_checkpoint_is_the_same_to_the_bit(method, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "backward", None)
    whole, half, rest = Model(method), Model(method), Model(method)
    start = frozen(list(whole.parameters()))
    trainer = fit(whole, tmp_path, 4)
    assert frozen(list(whole.parameters())) != start
    assert float(trainer.callback_metrics["evaluations"]) > 16
    first = fit(half, tmp_path, 2)
    first.save_checkpoint(tmp_path / "half.ckpt")
    fit(rest, tmp_path, 4, tmp_path / "half.ckpt")
    assert frozen(list(rest.parameters())) == frozen(list(whole.parameters()))
    if method == "MeZO":
        assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.05 / 32)
    assert all(p.grad is None for p in whole.parameters())


def test_optimizer_that_needs_gradients_is_refused(tmp_path):
    model = Model("MeZO")
    model.configure_optimizers = lambda: torch.optim.AdamW(model.parameters())
    with pytest.raises(ValueError, match="optimizer must be one of cocd, got AdamW"):
        fit(model, tmp_path, 1)
