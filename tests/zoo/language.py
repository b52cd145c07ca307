"""Language models: attention by hand and by torch, norms by hand, adapters, last tokens."""

import torch
from torch import nn
from torch.nn import functional as F

from .case import Case, Net, labels

_N, _T, _D, _H = 3, 5, 8, 2


class _RMSNorm(nn.Module):
    """As most language models spell it."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(size))

    def forward(self, x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (x.double() * scale).type_as(x) * self.weight


class _LoRA(nn.Module):
    """A linear layer and a product of two bare matrices beside it."""

    def __init__(self, size):
        super().__init__()
        self.base = nn.Linear(size, size, bias=False)
        self.a = nn.Parameter(torch.randn(2, size))
        self.b = nn.Parameter(torch.randn(size, 2))

    def forward(self, x):
        return self.base(x) + F.linear(x, self.a) @ self.b.T * 0.5


class _Block(nn.Module):
    def __init__(self, adapted):
        super().__init__()
        layer = _LoRA if adapted else lambda size: nn.Linear(size, size, bias=False)
        self.q, self.v = layer(_D), layer(_D)
        self.k, self.o = (nn.Linear(_D, _D, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(_D, 12, bias=False) for _ in range(2))
        self.down = nn.Linear(12, _D, bias=False)
        self.before, self.between = _RMSNorm(_D), _RMSNorm(_D)
        angles = torch.outer(torch.arange(_T), 0.3 ** torch.arange(2))
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))

    def heads(self, x):
        return x.view(_N, _T, _H, _D // _H).transpose(1, 2)

    def rotate(self, x):
        first, second = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat([-second, first], dim=-1) * self.sin

    def forward(self, x):
        h = self.before(x)
        q, k, v = self.heads(self.q(h)), self.heads(self.k(h)), self.heads(self.v(h))
        q, k = self.rotate(q), self.rotate(k)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(_N, _T, _D))
        h = self.between(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class _Llama(nn.Module):
    def __init__(self, pick, adapted=False):
        super().__init__()
        self.table = nn.Embedding(9, _D)
        self.blocks = nn.ModuleList(_Block(adapted) for _ in range(2))
        self.norm = _RMSNorm(_D)
        self.head = nn.Linear(_D, 4, bias=False)
        self.pick = pick

    def forward(self, tokens):
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x)
        return self.pick(self.head(self.norm(x)))


def _tokens():
    return torch.randint(9, (_N, _T))


def llama_last_token():
    model = _Llama(lambda logits: logits[:, -1])
    return Case(model, nn.CrossEntropyLoss(), _tokens(), labels(_N, 4))


def llama_adapters():
    model = _Llama(lambda logits: logits[:, -1, :], adapted=True)
    return Case(model, nn.CrossEntropyLoss(), _tokens(), labels(_N, 4))


def llama_own_last_token():
    last = torch.tensor([4, 1, 2])
    model = _Llama(lambda logits: logits[torch.arange(_N), last], adapted=True)
    return Case(model, nn.CrossEntropyLoss(), _tokens(), labels(_N, 4))


def llama_two_tokens():
    def pick(logits):
        return logits[:, 1] + logits[:, 3:].sum(1)

    return Case(_Llama(pick, adapted=True), nn.CrossEntropyLoss(), _tokens(), labels(_N, 4))


class _GPT(nn.Module):
    """Tied embedding and head, joint projection, attention by hand, functional norms."""

    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(9, _D), nn.Parameter(torch.randn(_T, _D))
        self.joint, self.out = nn.Linear(_D, 3 * _D), nn.Linear(_D, _D)
        self.scale, self.shift = nn.Parameter(torch.rand(_D)), nn.Parameter(torch.randn(_D))
        self.norm = nn.LayerNorm(_D)
        self.head = nn.Linear(_D, 9, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("seen", torch.ones(_T, _T, dtype=torch.bool).tril())

    def forward(self, tokens):
        x = self.table(tokens) + self.places
        h = F.layer_norm(x, (_D,), self.scale, self.shift)
        q, k, v = self.joint(h).split(_D, dim=2)
        q, k, v = (t.view(_N, _T, _H, -1).permute(0, 2, 1, 3) for t in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) / 2.0
        weights = F.softmax(scores.masked_fill(~self.seen, float("-inf")), dim=-1)
        x = x + self.out(torch.matmul(weights, v).transpose(1, 2).reshape(_N, _T, -1))
        return self.head(self.norm(F.gelu(x)))


def gpt_tied():
    def loss(logits, target):
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())

    tokens = _tokens()
    return Case(_GPT(), loss, tokens, tokens.roll(-1, 1))


def shapes_of_tokens():
    def forward(m, x):
        h = m.enter(x)  # (N, T, 4)
        a, b = torch.stack([h, h.tanh()], dim=2).unbind(2)
        wide = torch.where(x[..., :1] > 0, a, b).unsqueeze(2).expand(-1, -1, 3, -1)
        h = torch.einsum("ntki,kio->nto", wide, m.cube)
        h = h.repeat_interleave(2, dim=-1).to(torch.float64).to(x.dtype)
        h = torch.bmm(h, m.bare.expand(_N, -1, -1))
        scores = h.unsqueeze(1).repeat_interleave(2, dim=1)
        mask = m.mask.unsqueeze(0)
        h = F.scaled_dot_product_attention(scores, scores, scores, attn_mask=mask).mean(1)
        return F.rms_norm(h, (4,), m.gain)[:, -2:].mean(1)

    mask = torch.zeros(2, _T, _T).masked_fill(torch.rand(2, _T, _T) < 0.3, -2.0)
    layers = dict(
        enter=nn.Linear(3, 4),
        cube=nn.Parameter(torch.randn(3, 4, 2)),
        bare=nn.Parameter(torch.randn(4, 4)),
        gain=nn.Parameter(torch.rand(4)),
        mask=nn.Parameter(mask, requires_grad=False),
    )
    return Case(Net(forward, **layers), nn.MSELoss(), torch.randn(_N, _T, 3), torch.randn(_N, 4))


def bare_products():
    def forward(m, x):
        h = torch.addmm(m.row, x, m.first).tanh()
        h = (h @ m.second + h.matmul(m.second)).relu()
        return torch.addmm(m.row[:3], h, m.third)

    layers = {
        name: nn.Parameter(torch.randn(*size))
        for name, size in dict(first=(4, 5), second=(5, 6), third=(6, 3), row=(5,)).items()
    }
    return Case(Net(forward, **layers), nn.MSELoss(), torch.randn(7, 4), torch.randn(7, 3))


def looked_up():
    def forward(m, tokens):
        return F.linear(F.embedding(tokens, m.table).mean(1), m.table, m.bias)

    layers = dict(table=nn.Parameter(torch.randn(7, 3)), bias=nn.Parameter(torch.randn(7)))
    return Case(
        Net(forward, **layers), nn.CrossEntropyLoss(), torch.randint(5, (4, 3)), labels(4, 7)
    )
