"""Language models as others write them: those of transformers, and one written by hand."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import cocd
from cocd.objective.closure import sequential
from cocd.parts.evaluation import Evaluations

IDS = torch.randint(1, 23, (3, 7), generator=torch.Generator().manual_seed(0))
MASK = torch.ones_like(IDS)
MASK[1, 5:] = 0
_SIZES = dict(vocab_size=23, num_hidden_layers=2, num_attention_heads=2)


def llama(transformers, attention):
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=24, num_key_value_heads=1, max_position_embeddings=32,
        attn_implementation=attention, **_SIZES,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config), ["q_proj", "v_proj"]


def gpt2(transformers, attention):
    config = transformers.GPT2Config(
        vocab_size=23, n_embd=16, n_layer=2, n_head=2, n_positions=32, bos_token_id=0,
        eos_token_id=0, attn_pdrop=0.0, attn_implementation=attention,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config), ["c_attn"]


def bert(transformers, attention):
    config = transformers.BertConfig(
        hidden_size=16, intermediate_size=24, max_position_embeddings=32,
        attention_probs_dropout_prob=0.0, attn_implementation=attention, **_SIZES,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config), ["query", "value"]


def differences(parameters, closure, of=None):
    found = {}
    torch.manual_seed(1)
    with Evaluations(closure, None, (), lambda count: None) as evaluate:
        loss = evaluate(prepare=True)
        for name, p in parameters.items():
            index = [0, p.numel() // 2, p.numel() - 1]
            of_ = of or evaluate.bound.differences
            found[name] = of_(evaluate, loss, p, index, 0.05, "central").first
    return loss, found


def assert_followed(model, inputs, loss_of, target, rtol):
    parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    objective = cocd.trace(model, loss_of)
    with warnings.catch_warnings():
        warnings.simplefilter("error", cocd.EngineWarning)
        loss, found = differences(parameters, objective(inputs, target))
    assert {objective.engine_of(name) for name in parameters} == {"incremental"}
    same, expected = differences(parameters, lambda: loss_of(model(**inputs), target), sequential)
    assert loss == same
    torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol)
    lines = objective.explain().splitlines()
    assert max(map(len, lines)) <= 100 and len(lines) < 40


@pytest.mark.filterwarnings("ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning")
@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", [llama, gpt2, bert])
def test_models_of_transformers_are_followed_call_by_call(family, attention, lora):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, targets = family(transformers, attention)
    if lora:
        peft = pytest.importorskip("peft")
        config = peft.LoraConfig(
            r=2, target_modules=targets, init_lora_weights=False, fan_in_fan_out=family is gpt2
        )
        model = peft.get_peft_model(model, config)
    inputs = transformers.BatchEncoding({"input_ids": IDS, "attention_mask": MASK})
    target = torch.arange(3) % 2 if family is bert else IDS.roll(-1, 1).flatten()

    def loss_of(output, target):
        return F.cross_entropy(output.logits.flatten(0, -2), target)

    # Llama's norms are made in single precision, whatever the model is in.
    assert_followed(model.double(), inputs, loss_of, target, 1e-7 if family is llama else 1e-11)


class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, RMSNorm(size), RMSNorm(size)
        self.qkv, self.out = (
            nn.Linear(size, 3 * size, bias=False),
            nn.Linear(size, size, bias=False),
        )
        self.gate, self.up = nn.Linear(size, 20, bias=False), nn.Linear(size, 20, bias=False)
        self.down = nn.Linear(20, size, bias=False)

    def forward(self, x, cos, sin):
        N, L, D = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(N, L, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = (rotated(part, cos, sin) for part in (q, k))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(N, L, D))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotated(x, cos, sin):
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class Llama(nn.Module):
    """By hand: tables sliced by the length of the batch, assertions about shapes, a tied head."""

    def __init__(self, size=12, heads=2):
        super().__init__()
        self.embed, self.norm = nn.Embedding(23, size), RMSNorm(size)
        self.blocks = nn.ModuleList(Block(size, heads) for _ in range(2))
        angles = torch.arange(16)[:, None] / 100 ** torch.linspace(0, 1, size // heads // 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, input_ids, attention_mask=None):
        N, L = input_ids.shape
        assert len(self.cos) >= L, f"at most {len(self.cos)} tokens"
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x, self.cos[: x.shape[1]], self.sin[: x.shape[1]])
        assert x.shape == (N, L, self.embed.embedding_dim)
        return F.linear(self.norm(x), self.embed.weight)


def test_a_llama_by_hand_is_followed_at_every_length():
    torch.manual_seed(0)
    model = Llama().double()

    def loss_of(logits, target):
        return F.cross_entropy(logits.flatten(0, 1), target)

    for length in (7, 5, 7):
        inputs = {"input_ids": IDS[:, :length]}
        target = IDS.roll(-1, 1)[:, :length].flatten()
        assert_followed(model, inputs, loss_of, target, 1e-11)


# --- wrappers of torch ------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda m: torch.compile(m, backend="eager")])
def test_the_module_inside_a_wrapper_is_followed(wrap):
    torch.manual_seed(0)
    inside = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    model = wrap(inside)
    objective = cocd.trace(model, F.mse_loss)
    assert objective.model is inside
    optimizer = cocd.CoCD(model.parameters(), lr=0.1, compute_budget=8)
    x, y = torch.randn(6, 4).double(), torch.randn(6, 2).double()
    for _ in range(3):
        expected = F.mse_loss(inside(x), y).item()
        assert float(optimizer.step(objective(x, y))) == expected
    assert {objective.engine_of(name) for name, _ in inside.named_parameters()} == {"incremental"}


def test_a_compiled_child_is_followed_by_its_source():
    torch.manual_seed(0)
    child = torch.compile(nn.Sequential(nn.Linear(5, 5), nn.Tanh()), backend="eager")
    model = nn.Sequential(nn.Linear(4, 5), child, nn.Linear(5, 2)).double()
    objective = cocd.trace(model, F.mse_loss)
    optimizer = cocd.CoCD(model.parameters(), lr=0.1, compute_budget=20)
    before = {id(m): set(vars(m)) for m in model.modules()}
    for _ in range(4):
        optimizer.step(objective(torch.randn(6, 4).double(), torch.randn(6, 2).double()))
    assert {objective.engine_of(name) for name, _ in model.named_parameters()} == {"incremental"}
    assert before == {id(m): set(vars(m)) for m in model.modules()}
