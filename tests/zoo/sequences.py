"""Models of sequences and sets: tokens, recurrence, attention."""

import torch
from torch import nn
from torch.nn import functional as F

from .case import Case, Net, labels

_NO_RULE = "without a rule"
# The rules are for attention that draws no random numbers; its output's bias does not care.
_WITH_DROPOUT = {
    "*out_proj.bias": "incremental",
    "attention.*": _NO_RULE,
    "*": "incremental",
}


def embedding():
    def forward(m, tokens):
        return m.out(torch.relu(m.mix(m.table(tokens)).mean(dim=1)))

    table = nn.Embedding(9, 4, padding_idx=0)
    model = Net(forward, table=table, mix=nn.Linear(4, 5), out=nn.Linear(5, 3))
    return Case(model, nn.CrossEntropyLoss(), torch.randint(7, (5, 4)), labels(5, 3))


def embedding_bag():
    def forward(m, tokens):
        joined = torch.cat([m.mean(tokens), m.sum(tokens)], 1)
        return m.out(torch.relu(joined) + m.max(tokens))

    layers = dict(mean=nn.EmbeddingBag(9, 2, padding_idx=0), sum=nn.EmbeddingBag(9, 2, mode="sum"))
    model = Net(forward, max=nn.EmbeddingBag(9, 4, mode="max"), out=nn.Linear(4, 3), **layers)
    tokens, expected = torch.randint(9, (5, 4)), {"max.*": _NO_RULE, "*": "incremental"}
    return Case(model, nn.CrossEntropyLoss(), tokens, labels(5, 3), expected)


class _Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(9, 3, mode="sum", include_last_offset=True)
        self.out = nn.Linear(3, 3)

    def forward(self, tokens, offsets, weights):
        return self.out(torch.tanh(self.table(tokens, offsets, per_sample_weights=weights)))


def embedding_bag_with_offsets():
    inputs = (torch.randint(9, (8,)), torch.tensor([0, 3, 3, 8]), torch.rand(8))
    return Case(_Bags(), nn.CrossEntropyLoss(), inputs, labels(3, 3))


def tied_language_model():
    def forward(m, tokens):
        return (m.mix(m.table(tokens)) @ m.table.weight.T).transpose(1, 2)

    model = Net(forward, table=nn.Embedding(7, 3), mix=nn.Linear(3, 3))
    tokens = torch.randint(7, (4, 5))
    return Case(model, nn.CrossEntropyLoss(), tokens, tokens.roll(-1, 1))


def gru_classifier():
    def forward(m, x):
        states, last = m.gru(x)
        return m.out(torch.relu(states[:, -1] + last[0]))

    model = Net(forward, gru=nn.GRU(3, 4, batch_first=True), out=nn.Linear(4, 3))
    expected = {"gru.*": _NO_RULE, "*": "incremental"}
    return Case(model, nn.CrossEntropyLoss(), torch.randn(4, 5, 3), labels(4, 3), expected)


def lstm_classifier():
    def forward(m, x):
        return m.out(m.lstm(m.embed(x))[1][0][-1])

    lstm = nn.LSTM(3, 3, num_layers=2, dropout=0.3, bidirectional=True)
    model = Net(forward, embed=nn.Linear(2, 3), lstm=lstm, out=nn.Linear(3, 3))
    expected = {"lstm.*": _NO_RULE, "*": "incremental"}
    return Case(model, nn.CrossEntropyLoss(), torch.randn(4, 5, 2), labels(5, 3), expected)


def mixer_block():
    def forward(m, x):
        x = x + m.tokens(m.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + m.channels(m.norm2(x))
        return m.out(x.mean(1))

    def mlp(size):
        return nn.Sequential(nn.Linear(size, 5), nn.GELU(), nn.Linear(5, size))

    layers = dict(tokens=mlp(3), channels=mlp(4), norm1=nn.LayerNorm(4), norm2=nn.LayerNorm(4))
    model = Net(forward, out=nn.Linear(4, 3), **layers)
    return Case(model, nn.CrossEntropyLoss(), torch.randn(5, 3, 4), labels(5, 3))


class _Encoder(nn.Module):
    """Tokens, learned positions, pre-norm attention and feed-forward, as a vision transformer."""

    def __init__(self, **options):
        super().__init__()
        self.embed, self.position = nn.Embedding(9, 4), nn.Parameter(torch.randn(1, 5, 4))
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(4), nn.LayerNorm(4), nn.LayerNorm(4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, **options)
        self.feed = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4))
        self.out = nn.Linear(4, 3)

    def forward(self, tokens):
        x = self.embed(tokens) + self.position
        y = self.norm1(x)
        x = x + self.attention(y, y, y, key_padding_mask=tokens == 0, need_weights=False)[0]
        x = x + self.feed(self.norm2(x))
        return self.out(self.norm3(x)[:, 0])


def _tokens():
    return torch.randint(1, 9, (4, 5)) * (torch.arange(5) < torch.tensor([[5], [3], [4], [5]]))


def transformer_encoder():
    return Case(_Encoder(), nn.CrossEntropyLoss(), _tokens(), labels(4, 3))


def transformer_encoder_in_eval_mode():
    return Case(_Encoder(bias=False).eval(), nn.CrossEntropyLoss(), _tokens(), labels(4, 3))


def transformer_encoder_with_dropout():
    model, loss = _Encoder(dropout=0.3), nn.CrossEntropyLoss()
    return Case(model, loss, _tokens(), labels(4, 3), _WITH_DROPOUT)


def cross_attention():
    def forward(m, x):
        query, memory = m.query(x), torch.tanh(m.memory(x))
        mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
        mixed, weights = m.attention(query, memory, value=m.value(x), attn_mask=mask)
        return m.out(mixed).transpose(0, 1).mean(1) + weights.square().sum(2)[:, :3]

    layers = dict(query=nn.Linear(3, 4), memory=nn.Linear(3, 2), value=nn.Linear(3, 3))
    layers["attention"] = nn.MultiheadAttention(4, 2, kdim=2, vdim=3)
    nn.init.normal_(layers["attention"].in_proj_bias)
    model = Net(forward, out=nn.Linear(4, 3), **layers)
    return Case(model, nn.MSELoss(), torch.randn(5, 4, 3), torch.randn(4, 3))


def torch_transformer_layers():
    def forward(m, x):
        return m.out(m.second(m.first(x)).mean(1))

    first = nn.TransformerEncoderLayer(4, 2, 6, 0.2, batch_first=True)
    first.self_attn.dropout = 0.0
    second = nn.TransformerEncoderLayer(4, 1, 5, 0.0, F.gelu, batch_first=True, norm_first=True)
    model = Net(forward, first=first, second=second, out=nn.Linear(4, 3))
    return Case(model, nn.CrossEntropyLoss(), torch.randn(4, 3, 4), labels(4, 3))


def torch_transformer_in_eval_mode():
    def forward(m, x):
        return m.out(m.body(x)).amax(0)

    layer = nn.TransformerEncoderLayer(4, 2, 6)
    body = nn.TransformerEncoder(layer, 2, nn.LayerNorm(4), enable_nested_tensor=False)
    model = Net(forward, body=body, out=nn.Linear(4, 3)).eval()
    return Case(model, nn.CrossEntropyLoss(), torch.randn(3, 4, 4), labels(4, 3))


def attention_by_hand():
    def forward(m, x):
        q, k, v = m.qkv(x).reshape(4, 3, 3, 2, 2).permute(2, 0, 3, 1, 4).unbind(0)
        weights = F.softmax(q @ k.transpose(-2, -1) / 2**0.5, dim=-1)
        y = torch.einsum("bhij,bhjd->bihd", weights, v).flatten(2)
        y = y + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return m.out(F.layer_norm(y, (4,))).amax(1)

    model = Net(forward, qkv=nn.Linear(4, 12), out=nn.Linear(4, 3))
    return Case(model, nn.CrossEntropyLoss(), torch.randn(4, 3, 4), labels(4, 3))
