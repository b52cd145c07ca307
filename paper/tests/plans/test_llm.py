"""The plan `llm` on a tiny random model: files are read, rows made once, settings chosen."""

import json
import math
import struct

import numpy as np
import pytest
import torch
from cocd_paper.cli import main
from cocd_paper.llm import checkpoint, llama, methods, questions, subsets, table, training
from cocd_paper.llm.command import choose_rate
from cocd_paper.llm.tokenizer import Tokenizer
from cocd_paper.plans import llm as plan

SHAPE = checkpoint.Shape(8, 12, 2, 2, 2, 300, 64)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A checkpoint of random weights, a tokenizer of bytes and label words, and some questions."""
    folder = tmp_path_factory.mktemp("llm")
    generator = np.random.default_rng(0)
    d, h, n, _, _, v, _ = SHAPE
    sizes = [v * d, n * d, *[n * d * d] * 4, n * d, *[n * h * d] * 3, d, 64 * 2 * 2]
    weights = [generator.normal(0, 0.3, size).astype("<f4") for size in sizes]
    for norm in (1, 6, 10):
        weights[norm][:] = 1
    content = struct.pack("<7i", *SHAPE) + b"".join(part.tobytes() for part in weights)
    (folder / "model.bin").write_bytes(content)
    words = [f" {word}".encode() for word in questions.WORDS]
    merged = [word[:k] for word in words for k in range(2, len(word) + 1)]
    tokens = [b"<unk>", b"<s>", b"</s>", *[bytes([i]) for i in range(256)], *merged]
    tokens += [f"filler {i}".encode() for i in range(SHAPE.vocabulary - len(tokens))]
    (folder / "tokenizer.bin").write_bytes(
        struct.pack("<i", 9) + b"".join(struct.pack("<fi", len(t), len(t)) + t for t in tokens)
    )
    lines = [f"{i % 6} {'abcdef'[i % 6]} ?" for i in range(1100)]
    (folder / "TREC.train.all").write_text("\n".join(lines))
    (folder / "TREC.test.all").write_text("\n".join(lines[:12]))
    return folder


@pytest.fixture(scope="module")
def materials(files):
    return training.Materials(files / "model.bin", files / "tokenizer.bin", files)


def test_text_becomes_the_tokens_with_the_best_scores(files):
    tokenizer = Tokenizer(files / "tokenizer.bin", SHAPE.vocabulary)
    (word,) = tokenizer("reason", begin=False)
    assert tokenizer("reason")[0] == 1 and word > 258
    assert tokenizer("é", begin=False) == [3 + ord(" "), 3 + 0xC3, 3 + 0xA9]


def test_damaged_files_are_refused(files, tmp_path):
    (tmp_path / "short.bin").write_bytes((files / "model.bin").read_bytes()[:900])
    with pytest.raises(ValueError, match="ends early"):
        checkpoint.read(tmp_path / "short.bin")
    (tmp_path / "short.bin").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"no llama2\.c checkpoint"):
        checkpoint.read(tmp_path / "short.bin")
    with pytest.raises(ValueError, match="holds"):
        Tokenizer(files / "tokenizer.bin", 10_000)


def test_padding_changes_no_logit(materials):
    model = materials.model()
    rows = materials.questions.train[0][:5]
    with torch.no_grad():
        together = model(*llama.padded(rows, questions.LENGTH))
        for row, logits in zip(rows, together, strict=True):
            (alone,) = model(*llama.padded([row], len(row)))
            torch.testing.assert_close(logits, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", plan.SUBSETS)
def test_tail_from_cached_activations_is_the_model(materials, name):
    model = materials.model()
    subset = subsets.choose(name, model, 0)
    for p in subset.parameters:
        torch.nn.init.normal_(p, std=0.1)
    inputs, _ = materials.rows("train", subset.start).batch([0, 1, 2])
    with torch.no_grad():
        found = llama.Tail(model, subset.start)(*inputs)
        tokens = llama.padded(materials.questions.train[0][:3], questions.LENGTH)
        torch.testing.assert_close(found, model(*tokens), rtol=1e-4, atol=1e-5)
    assert {id(p) for p in model.parameters() if p.requires_grad} == set(map(id, subset.parameters))


@pytest.mark.parametrize("name", plan.METHODS)
def test_every_method_trains_and_counts(materials, name):
    row = plan.Row("head", name, 0.003, 0, 40, False)
    found = training.train(row, materials)
    assert found["how"] == "done" and found["curve"][-1]["evaluations"] >= 40
    assert found["curve"][0]["evaluations"] == 0
    assert found["loss"] != found["curve"][0]["loss"]


def test_unknown_method_is_refused(materials):
    subset = subsets.choose("head", materials.model(), 0)
    with pytest.raises(ValueError, match="'newton'"):
        methods.make("newton", subset, torch.nn.Identity(), 0.1, 10, 0)


def test_command_makes_every_row_once_and_shows_the_best_rate(files, tmp_path, capsys):
    options = ["llm", "--subset", "head", "--method", "mezo", "auto", "--evaluations", "20"]
    options += ["--rows", str(tmp_path / "rows.jsonl")]
    options += ["--model", str(files / "model.bin")]
    options += ["--tokenizer", str(files / "tokenizer.bin"), "--trec", str(files)]
    assert main(options) == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    tuned = [row for row in rows if row["tuning"]]
    rates = {row["lr"] for row in tuned}
    assert len(rates) == len(tuned) and all(row["test"] is None for row in tuned)
    (run,) = [row for row in rows if row["method"] == "mezo" and not row["tuning"]]
    assert run["lr"] == table.best(tuned)["lr"]
    figure = tmp_path / "curves.svg"
    shown = ["llm", "--subset", "head", *options[-8:-6], "--table", "--figure", str(figure)]
    assert main(options) == 0 and main(shown) == 0
    assert figure.read_text().count("<path") > 10
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == len(rows)
    assert "| head, last two norms |" in capsys.readouterr().out


def test_files_that_are_not_named_are_asked_for(capsys):
    assert main(["llm", "--rows", "nowhere.jsonl"]) == 2
    assert "--model and --tokenizer and --trec" in capsys.readouterr().out


@pytest.mark.parametrize(("peak", "tried"), [(1e-4, 5), (3e-1, 6), (1e-7, 6), (3e-3, 5)])
def test_search_for_the_rate_stops_once_both_neighbours_are_worse(peak, tried):
    rows = {}

    def make(row):
        dev = -abs(math.log10(row.lr / peak))
        rows[row.key] = {"how": "done", "lr": row.lr, "dev": dev, "curve": [{"dev_loss": 0.0}]}

    pair = plan.Pair("head", "mezo", 20, "constant")
    found = choose_rate(pair, rows, make)
    assert abs(math.log10(found / peak)) <= 1.0 and len(rows) == tried
    assert found == table.best([*rows.values()])["lr"]


def test_cosine_lets_the_rate_fall_to_nothing(materials):
    constant = training.train(plan.Row("head", "adam", 0.01, 0, 60, False), materials)
    falling = training.train(plan.Row("head", "adam", 0.01, 0, 60, False, "cosine"), materials)
    (a, b), (c, d) = (row["curve"][-2:] for row in (constant, falling))
    assert abs(d["loss"] - c["loss"]) < abs(b["loss"] - a["loss"])
    assert plan.default_schedule("mezo") == "constant" and plan.default_schedule("adam") == "cosine"
