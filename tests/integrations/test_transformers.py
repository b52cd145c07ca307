"""The Trainer on tiny random models: no backward pass, resumed to the bit, LoRA, evaluation."""

import copy

import pytest
import torch
from helpers import frozen
from torch import nn

import cocd
from cocd import baselines

transformers = pytest.importorskip("transformers")
from cocd.integrations.transformers import Trainer  # noqa: E402


def llama(**options):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=16,
        num_labels=2,
        pad_token_id=0,
        **options,
    )
    return transformers.LlamaForSequenceClassification(config)


def rows(count=12):
    generator = torch.Generator().manual_seed(1)
    found = []
    for i in range(count):
        tokens = torch.randint(4, 16, (5,), generator=generator)
        tokens[-1] = 1 + i % 2
        found.append({"input_ids": tokens, "labels": i % 2})
    return found


def arguments(folder, **options):
    return transformers.TrainingArguments(
        str(folder),
        **{
            "per_device_train_batch_size": 4,
            "max_steps": 6,
            "save_steps": 3,
            "logging_steps": 2,
            "report_to": [],
            "use_cpu": True,
            "disable_tqdm": True,
            "eval_strategy": "steps",
            "eval_steps": 6,
            **options,
        },
    )


def head(model):
    return list(model.score.parameters())


METHODS = {
    "MeZO": lambda m: {"optimizers": baselines.MeZO(m.parameters(), lr=1e-2)},
    "CoCD": lambda m: {"optimizers": cocd.CoCD(head(m), lr=1e-2, eps=0.1, compute_budget=4)},
    "AutoCoCD": lambda m: {"optimizers": cocd.AutoCoCD(head(m))},
    "CoherentGradient": lambda m: {
        "optimizers": torch.optim.AdamW(head(m), lr=1e-2),
        "gradient": cocd.CoherentGradient(head(m), eps=0.1, compute_budget=4),
    },
}


def trainer(model, folder, method, **options):
    arguments_, others = arguments(folder), {"train_dataset": rows(), "eval_dataset": rows()}
    return Trainer(model, options.pop("args", arguments_), **method, **{**others, **options})


@pytest.fixture(autouse=True)
def no_backward(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("backward was called")

    monkeypatch.setattr(torch.Tensor, "backward", refuse)
    monkeypatch.setattr(torch.autograd, "backward", refuse)


@pytest.mark.parametrize("name", METHODS)
def test_run_resumed_from_a_checkpoint_is_the_same_to_the_bit(name, tmp_path):
    model, twin = llama(attention_dropout=0.1), llama(attention_dropout=0.1)
    start = frozen(list(model.parameters()))
    whole = trainer(model, tmp_path, METHODS[name](model))
    whole.train()
    assert frozen(list(model.parameters())) != start
    rest = trainer(twin, tmp_path, METHODS[name](twin))
    rest.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert frozen(list(twin.parameters())) == frozen(list(model.parameters()))
    assert (rest.steps.steps, rest.steps.evaluations) == (6, whole.steps.evaluations)
    assert all(p.grad is None for p in model.parameters())
    history = whole.state.log_history
    assert [row["evaluations"] for row in history if "eval_loss" in row] == [
        whole.steps.evaluations
    ]


def test_scheduler_moves_the_rate_and_callbacks_hear_of_steps(tmp_path):
    heard, records = [], []

    class Callback(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            heard.append(state.global_step)

    model = llama()
    optimizer = baselines.MeZO(head(model), lr=0.6)
    run = trainer(
        model, tmp_path, {"optimizers": optimizer}, callbacks=[Callback()], on_step=records.append
    )
    run.train()
    assert heard == [1, 2, 3, 4, 5, 6]
    assert [round(record["lr"], 6) for record in records] == [0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    assert [record["evaluations"] for record in records] == [2, 4, 6, 8, 10, 12]


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")
def test_lora_of_peft_is_trained_alone(tmp_path):
    peft = pytest.importorskip("peft")
    model = llama()
    before = copy.deepcopy(model.state_dict())
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["q_proj", "v_proj"])
    model = peft.get_peft_model(model, config)
    trained = [p for p in model.parameters() if p.requires_grad]
    run = trainer(model, tmp_path, {"optimizers": baselines.MeZO(trained, lr=1e-2)})
    run.train()
    after = dict(model.named_parameters())
    moved = [name for name, p in after.items() if "lora_B" in name and p.abs().sum() > 0]
    assert len(moved) == 2
    for name, value in before.items():
        same = next(p for n, p in model.state_dict().items() if _plain(n).endswith(name))
        assert torch.equal(same, value) or name.startswith("score")


def _plain(name):
    return name.replace(".base_layer", "").replace(".original_module", "")


def test_traced_objective_of_a_transformer_goes_the_way_of_its_closure(tmp_path):
    found = []
    for traced in (False, True):
        model = llama()
        objective = cocd.trace(
            model, lambda output, y: nn.functional.cross_entropy(output["logits"], y)
        )

        def bind(batch, objective=objective):
            inputs = {name: value for name, value in batch.items() if name != "labels"}
            return objective(inputs, batch["labels"])

        optimizer = cocd.CoCD(head(model), lr=0.05, eps=0.1, compute_budget=4)
        run = trainer(model, tmp_path, {"optimizers": optimizer}, bind=bind if traced else None)
        run.train()
        assert not traced or objective.engine_of("score.weight") == "incremental"
        found.append(model.score.weight.detach())
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


class Classifier(nn.Module):
    """A model that a traced objective can follow, as the Trainer wants it."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2))

    def forward(self, input_ids, labels=None):
        logits = self.body(input_ids.float() / 16)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def test_unit_gradient_steps_with_a_traced_objective(tmp_path):
    torch.manual_seed(0)
    model = Classifier()
    objective = cocd.trace(model.body, nn.functional.cross_entropy)
    gradient = cocd.UnitGradient(objective)
    run = trainer(
        model,
        tmp_path,
        {"optimizers": torch.optim.AdamW(model.parameters(), lr=0.05), "gradient": gradient},
        args=arguments(tmp_path, max_grad_norm=0.5),
        bind=lambda batch: objective(batch["input_ids"].float() / 16, batch["labels"]),
    )
    before = run.evaluate()["eval_loss"]
    run.train()
    assert run.evaluate()["eval_loss"] < before
    assert run.steps.evaluations == gradient.evaluations == 6 * 9


@pytest.mark.parametrize("dropout", [False, True])
def test_dropout_is_off_unless_asked_for(dropout, tmp_path):
    model, modes = llama(), []
    model.score.register_forward_pre_hook(lambda *_: modes.append(model.training))
    mezo = {"optimizers": baselines.MeZO(head(model), lr=1e-2)}
    run = trainer(model, tmp_path, mezo, dropout=dropout)
    run.train()
    assert modes[:12] == [dropout] * 12


def test_unit_gradient_trains_the_head_of_a_model_with_attention_dropout(tmp_path):
    model = llama(attention_dropout=0.1).requires_grad_(False)
    model.score.requires_grad_(True)
    objective = cocd.trace(
        model, lambda output, y: nn.functional.cross_entropy(output["logits"], y)
    )
    gradient = cocd.UnitGradient(objective, directions=1)
    before = frozen(head(model))
    run = trainer(
        model,
        tmp_path,
        {"optimizers": torch.optim.AdamW(head(model), lr=0.05), "gradient": gradient},
        bind=lambda batch: objective({"input_ids": batch["input_ids"]}, batch["labels"]),
    )
    run.train()
    assert frozen(head(model)) != before and gradient.evaluations == 6 * 2


def test_what_cannot_work_is_refused(tmp_path):
    model = llama()
    mezo = baselines.MeZO(model.parameters(), lr=1e-2)
    with pytest.raises(ValueError, match="gradient_accumulation_steps=2"):
        args = arguments(tmp_path, gradient_accumulation_steps=2)
        Trainer(model, args, optimizers=mezo, train_dataset=rows())
    adam = torch.optim.AdamW(model.parameters())
    with pytest.raises(ValueError, match="optimizer must be one of cocd, got AdamW"):
        Trainer(model, arguments(tmp_path), optimizers=(adam, None), train_dataset=rows())
    with pytest.raises(ValueError, match="MeZO probes by itself"):
        gradient = cocd.CoherentGradient(head(model), eps=0.1, compute_budget=1)
        Trainer(model, arguments(tmp_path), optimizers=mezo, gradient=gradient)


def test_checkpoint_of_another_trainer_is_refused(tmp_path):
    model = llama()
    run = trainer(model, tmp_path, METHODS["MeZO"](model))
    run.train()
    (tmp_path / "checkpoint-3" / "cocd.pt").unlink()
    with pytest.raises(ValueError, match="was not saved by this Trainer"):
        run.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
