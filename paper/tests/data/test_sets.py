"""Loaders: formats read strictly, splits that do not leak, scaling by training rows alone."""

import dataclasses
import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from cocd_paper import data
from cocd_paper.data import files, sets, splits
from data_files import (
    cifar_batches,
    digits,
    idx,
    one_sentence,
    sarcos_rows,
    write_cifar_binary,
    write_mnist,
    write_sarcos,
)
from torch.nn.functional import mse_loss


def rows_of(tensor):
    return {row.numpy().tobytes() for row in tensor.flatten(1)}


def torques(loaded, side):
    """The targets are not scaled, so they identify rows."""
    return rows_of(getattr(loaded, f"{side}_y"))


# --- SARCOS ----------------------------------------------------------------------------------


def small_sarcos(folder, split="test", seed=0):
    return data.sarcos(data=folder, split=split, seed=seed, check=False)


def test_sarcos_holds_a_tenth_out_and_standardises_by_the_rest(tmp_path):
    rows = sarcos_rows(200)
    rows[:, 5] = 4.0  # a constant column is shifted, not divided by zero
    write_sarcos(tmp_path, rows)
    loaded = small_sarcos(tmp_path)
    assert loaded.train_x.shape == (180, 21)
    assert loaded.held_y.shape == (20, 7)
    assert {t.dtype for t in (loaded.train_x, loaded.train_y, loaded.held_x)} == {torch.float32}
    assert torques(loaded, "train") | torques(loaded, "held") == rows_of(
        torch.from_numpy(rows[:, 21:]).float()
    )
    scale = torch.ones(21)
    scale[5] = 0
    torch.testing.assert_close(loaded.train_x.mean(0), torch.zeros(21), atol=1e-6, rtol=0)
    torch.testing.assert_close(loaded.train_x.std(0, correction=0), scale)


def test_what_is_held_out_does_not_move_the_scaling(tmp_path):
    """Held rows a thousand times as large: the training inputs do not change by a bit."""
    rows = sarcos_rows(100)
    write_sarcos(tmp_path / "a", rows)
    before = small_sarcos(tmp_path / "a")
    held = [row.tobytes() in torques(before, "held") for row in rows[:, 21:].astype(np.float32)]
    assert sum(held) == 10
    rows[held, :21] *= 1000
    write_sarcos(tmp_path / "b", rows)
    after = small_sarcos(tmp_path / "b")
    assert torch.equal(before.train_x, after.train_x)
    assert after.held_x.std() > 500 * before.held_x.std()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("split", ["test", "validation"])
def test_no_row_is_on_both_sides(tmp_path, split, seed):
    """Every row three times, one of them with its zeros negative, shuffled."""
    rows = sarcos_rows(80)
    rows[:, ::4] = 0.0
    again = rows.copy()
    again[:, ::4] = -0.0
    again[:, 21:] += 1.0  # the same inputs with other torques are the same row, too
    everything = np.random.RandomState(seed).permutation(np.concatenate([rows, again, rows]))
    write_sarcos(tmp_path, everything)
    loaded = small_sarcos(tmp_path, split, seed)
    sides = len(loaded.train_x) + len(loaded.held_x)
    assert sides == 240 if split == "test" else 210 <= sides <= 216
    assert len(loaded.held_x) % 3 == 0
    assert not rows_of(loaded.train_x + 0.0) & rows_of(loaded.held_x + 0.0)


def test_validation_rows_are_training_rows_and_test_rows_are_on_neither_side(tmp_path):
    write_sarcos(tmp_path, sarcos_rows(300))
    test, tuning = small_sarcos(tmp_path), small_sarcos(tmp_path, "validation")
    assert torques(tuning, "train") | torques(tuning, "held") == torques(test, "train")
    assert not torques(tuning, "train") & torques(tuning, "held")
    assert len(tuning.held_x) == 27
    torch.testing.assert_close(tuning.train_x.mean(0), torch.zeros(21), atol=1e-6, rtol=0)


def test_the_seed_decides_the_split_and_nothing_else_does(tmp_path):
    write_sarcos(tmp_path, sarcos_rows(300))
    first, second, other = (torques(small_sarcos(tmp_path, seed=s), "held") for s in (3, 3, 4))
    assert first == second
    assert first != other
    _, held = splits.hold_out(np.arange(60)[:, None], seed=0)
    assert held.tolist() == [2, 11, 26, 28, 35, 59]  # with every NumPy: results depend on it


def test_the_published_split_counts_its_own_leak(tmp_path):
    train, test = sarcos_rows(50), sarcos_rows(6, seed=9)
    train[7, 3], test[:3] = -0.0, train[6:9]
    test[1, 3] = 0.0  # equal to -0.0
    test[2, 27] += 1e-6  # the same inputs, another torque
    write_sarcos(tmp_path, train, test)
    loaded = small_sarcos(tmp_path, "published")
    assert (len(loaded.train_x), len(loaded.held_x)) == (50, 6)
    assert "2 of the 6 test rows stand verbatim" in loaded.note
    assert "the inputs of 3 do" in loaded.note
    torch.testing.assert_close(loaded.train_x.mean(0), torch.zeros(21), atol=1e-6, rtol=0)


def test_too_few_rows_to_hold_any_out(tmp_path):
    write_sarcos(tmp_path, np.repeat(sarcos_rows(1), 20, axis=0))
    with pytest.raises(data.DataError, match="20 rows, 1 of them distinct, are too few"):
        small_sarcos(tmp_path)


# --- images ----------------------------------------------------------------------------------


def test_mnist_in_its_usual_scale(tmp_path):
    write_mnist(tmp_path)
    loaded = data.mnist(data=tmp_path, check=False)
    images, labels = digits(60)
    assert loaded.train_x.shape == (60, 1, 28, 28)
    assert loaded.held_x.shape == (10, 1, 28, 28)
    expected = (torch.from_numpy(images)[:, None] / 255 - 0.1307) / 0.3081
    torch.testing.assert_close(loaded.train_x, expected)
    assert loaded.train_y.dtype == torch.int64
    assert loaded.train_y.tolist() == labels.tolist()


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_tuning_on_images_does_not_even_read_the_test_files(tmp_path, name):
    write_mnist(tmp_path)
    write_cifar_binary(tmp_path, cifar_batches(12))
    for file in [*tmp_path.rglob("t10k*"), *tmp_path.rglob("test_batch*")]:
        file.unlink()
    loaded = data.load(name, data=tmp_path, split="validation", check=False)
    assert len(loaded.train_x) == 54
    assert len(loaded.held_x) == 6
    assert not rows_of(loaded.train_x) & rows_of(loaded.held_x)
    with pytest.raises(data.DataError, match="is not there"):
        data.load(name, data=tmp_path, check=False)


@pytest.mark.parametrize("split", ["test", "validation"])
def test_cifar_channels_are_standardised_by_the_training_images(tmp_path, split):
    batches = cifar_batches()
    batches["test_batch"][:, 1:] = 255
    batches["data_batch_1"][:, 1:1025] //= 2  # channels with a mean of their own
    write_cifar_binary(tmp_path, batches)
    loaded = data.cifar10(data=tmp_path, split=split, check=False)
    assert loaded.train_x.shape == (40 if split == "test" else 36, 3, 32, 32)
    mean = loaded.train_x.double().mean((0, 2, 3))
    torch.testing.assert_close(mean, torch.zeros(3).double(), atol=1e-6, rtol=0)
    deviation = loaded.train_x.double().std((0, 2, 3), correction=0)
    torch.testing.assert_close(deviation, torch.ones(3).double(), atol=1e-6, rtol=0)
    if split == "test":
        assert loaded.held_x.min() > 1  # not its own mean


def test_cifar_pixels_are_in_their_places(tmp_path):
    batches = cifar_batches()
    write_cifar_binary(tmp_path, batches)
    loaded = data.cifar10(data=tmp_path, check=False)
    red = batches["data_batch_1"][0, 1:1025]
    order = loaded.train_x[0, 0].flatten().argsort()
    assert (np.diff(red[order.numpy()].astype(int)) >= 0).all()
    assert loaded.train_y[:8].tolist() == batches["data_batch_1"][:, 0].tolist()


def test_labels_that_do_not_belong_to_the_images(tmp_path):
    write_mnist(tmp_path)
    labels = tmp_path / "mnist/train-labels-idx1-ubyte.gz"
    labels.write_bytes(gzip.compress(idx(np.zeros(59, dtype=np.uint8))))
    with pytest.raises(data.DataError, match="a label from 0 to 9 for each of 60") as error:
        data.mnist(data=tmp_path, check=False)
    one_sentence(error, labels, "cocd-paper data get mnist")
    labels.write_bytes(gzip.compress(idx(np.full(60, 10, dtype=np.uint8))))
    with pytest.raises(data.DataError, match="a label from 0 to 9 for each of 60"):
        data.mnist(data=tmp_path, check=False)


def test_images_of_another_size(tmp_path):
    write_mnist(tmp_path)
    images = tmp_path / "mnist/train-images-idx3-ubyte.gz"
    images.write_bytes(gzip.compress(idx(np.zeros((60, 8, 8)))))
    with pytest.raises(data.DataError, match="images of 28 x 28 pixels"):
        data.mnist(data=tmp_path, check=False)


# --- arguments, places, checks ---------------------------------------------------------------


def test_what_is_given_can_be_neither_changed_nor_mistaken(tmp_path):
    loaded = data.generated("sarcos", rows=40)
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.train_x = loaded.held_x
    assert repr(loaded) == "Splits('sarcos', 'generated', 40 + 10 rows of (21,))"


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_only_sarcos_has_a_published_split(name, tmp_path):
    with pytest.raises(ValueError, match=f"split of {name} must be one of test, validation, got"):
        data.load(name, data=tmp_path, split="published")


@pytest.mark.parametrize("seed", [-1, 2**32, 0.5, True, None])
def test_a_seed_that_is_none(tmp_path, seed):
    with pytest.raises(ValueError, match="seed must be a whole number"):
        data.load("sarcos", data=tmp_path, seed=seed)
    with pytest.raises(ValueError, match="seed must be a whole number"):
        data.generated("sarcos", seed)


@pytest.mark.parametrize("name", data.NAMES)
def test_a_missing_file_is_one_sentence_with_the_remedy(tmp_path, name, monkeypatch):
    with pytest.raises(data.DataError) as error:
        data.load(name, data=tmp_path)
    one_sentence(error, tmp_path, "is not there", f"'cocd-paper data get {name} --data {tmp_path}'")
    monkeypatch.setenv("COCD_DATA", str(tmp_path))
    with pytest.raises(data.DataError) as error:
        data.load(name)
    one_sentence(error, tmp_path, f"'cocd-paper data get {name}'")


@pytest.mark.parametrize("name", data.NAMES)
def test_a_readable_file_that_is_not_the_official_one(tmp_path, name):
    write_sarcos(tmp_path, sarcos_rows(20), sarcos_rows(5))
    write_mnist(tmp_path)
    write_cifar_binary(tmp_path, cifar_batches())
    with pytest.raises(data.DataError, match="is not the official file") as error:
        data.load(name, data=tmp_path)
    one_sentence(error, tmp_path, f"cocd-paper data get {name}", "check=False")
    assert data.load(name, data=tmp_path, check=False).name == name


def test_the_folder_is_the_argument_then_COCD_DATA_then_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COCD_DATA", str(tmp_path / "named"))
    assert files.place(tmp_path / "given").folder == tmp_path / "given"
    assert files.place().folder == tmp_path / "named"
    assert files.place("~/given").folder == tmp_path / "home/given"
    monkeypatch.setenv("COCD_DATA", "")
    assert files.place().folder.name == "cocd"


def test_no_home_folder(monkeypatch):
    def homeless(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    with pytest.raises(data.DataError, match="COCD_DATA"):
        files.place("~/data")


@pytest.mark.parametrize(
    ("path", "content", "what"),
    [
        ("sarcos/sarcos_inv.mat", b"MATLAB 5.0", "no readable matrix sarcos_inv"),
        ("mnist/train-images-idx3-ubyte.gz", gzip.compress(b"<html>"), "whole IDX file of 3"),
        ("mnist/train-labels-idx1-ubyte.gz", b"<html>", "cannot be read"),
        ("cifar-10-batches-bin/data_batch_3.bin", bytes(3000), "records of 3,073 bytes"),
        ("cifar-10-batches-bin/test_batch.bin", b"\x0b" * 3073, "labels from 0 to 9"),
    ],
)
def test_unchecked_files_of_another_format_are_refused_in_one_sentence(
    tmp_path, path, content, what
):
    write_sarcos(tmp_path, sarcos_rows(20), sarcos_rows(5))
    write_mnist(tmp_path)
    write_cifar_binary(tmp_path, cifar_batches())
    (tmp_path / path).write_bytes(content)
    name = next(name for name, known in files.FILES.items() if path in known)
    with pytest.raises(data.DataError, match=what) as error:
        data.load(name, data=tmp_path, check=False)
    one_sentence(error, tmp_path / path, f"cocd-paper data get {name}")


def test_the_checksum_comes_before_the_parser(tmp_path, monkeypatch):
    write_sarcos(tmp_path, sarcos_rows(20))
    monkeypatch.setattr(sets, "matlab", lambda *_: pytest.fail("it was read"))
    with pytest.raises(data.DataError, match="another checksum"):
        data.sarcos(data=tmp_path)


# --- generated data --------------------------------------------------------------------------


def test_generated_torques_can_be_learnt():
    """A straight line through the training rows explains most of the held rows, not all."""
    made = data.generated("sarcos", 1)
    line = torch.linalg.lstsq(made.train_x, made.train_y).solution
    loss = mse_loss(made.held_x @ line, made.held_y)
    assert 0.02 < loss / made.held_y.var() < 0.5


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_generated_images_can_be_learnt(name):
    """The nearest mean of the training images gives the class of the held images."""
    made = data.generated(name, 1, rows=256)
    means = torch.stack([made.train_x[made.train_y == label].mean(0) for label in range(10)])
    nearest = torch.cdist(made.held_x.flatten(1), means.flatten(1)).argmin(1)
    assert (nearest == made.held_y).float().mean() > 0.95


@pytest.mark.parametrize("name", data.NAMES)
def test_generated_rows_follow_the_seed_and_what_is_to_be_learnt_does_not(name):
    one, again, other = (data.generated(name, seed, rows=64) for seed in (1, 1, 2))
    assert torch.equal(one.train_x, again.train_x)
    assert torch.equal(one.held_y, again.held_y)
    assert not torch.equal(one.train_x, other.train_x)
    assert one.note.startswith("Generated")
    if name != "sarcos":
        same = int(one.train_y[0])
        pair = [made.train_x[made.train_y == same].mean(0).flatten() for made in (one, other)]
        assert torch.corrcoef(torch.stack(pair))[0, 1] > 0.8


@pytest.mark.parametrize(("name", "rows"), [("iris", 64), ("mnist", 3), ("mnist", 8.0)])
def test_generated_data_that_cannot_be(name, rows):
    with pytest.raises(ValueError, match="name must be one of" if name == "iris" else "rows must"):
        data.generated(name, rows=rows)


# --- the real files --------------------------------------------------------------------------


def real(name):
    """Skip unless the real files are there; damaged ones must not hide behind a skip."""
    if not os.environ.get("COCD_DATA"):
        pytest.skip("COCD_DATA is not set: no real data")
    if not any((files.place().folder / path).is_file() for path in files.FILES[name]):
        pytest.skip(f"COCD_DATA has no {name}")


@pytest.mark.parametrize("split", ["test", "validation"])
def test_the_real_sarcos_rows_are_on_one_side_only(split):
    real("sarcos")
    loaded = data.sarcos(split=split)
    assert loaded.train_x.shape[1:] == (21,)
    expected = (40_036, 4_448) if split == "test" else (36_033, 4_003)
    assert (len(loaded.train_x), len(loaded.held_x)) == expected
    train, held = rows_of(loaded.train_x + 0.0), rows_of(loaded.held_x + 0.0)
    assert len(train) + len(held) == sum(expected)  # no row occurs twice
    assert not train & held
    torch.testing.assert_close(loaded.train_x.mean(0), torch.zeros(21), atol=1e-5, rtol=0)
    torch.testing.assert_close(loaded.train_x.std(0), torch.ones(21), atol=1e-4, rtol=0)


def test_the_real_published_split_leaks():
    real("sarcos")
    note = data.sarcos(split="published").note
    assert "4,446 of the 4,449 test rows stand verbatim" in note
    assert "the inputs of 4,449 do" in note


def test_the_real_mnist():
    real("mnist")
    loaded = data.mnist()
    assert (len(loaded.train_x), len(loaded.held_x)) == (60_000, 10_000)
    assert abs(loaded.train_x.mean()) < 1e-3
    assert abs(loaded.train_x.std() - 1) < 1e-3
    assert loaded.train_y[:5].tolist() == [5, 0, 4, 1, 9]


def test_the_real_cifar10():
    real("cifar10")
    loaded = data.cifar10()
    assert (len(loaded.train_x), len(loaded.held_x)) == (50_000, 10_000)
    assert loaded.train_y[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert loaded.train_y.bincount().tolist() == [5000] * 10
