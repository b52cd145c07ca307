"""Official formats: what is whole is read, what is damaged is refused in one sentence."""

import gzip
import os
import pickle
import struct

import numpy as np
import pytest
from cocd_paper import data
from cocd_paper.data import formats
from cocd_paper.data.matlab import read_matrix
from data_files import idx, one_sentence, python_2_batch, sarcos_rows, write_sarcos
from scipy.io import loadmat, savemat

REMEDY = "run 'cocd-paper data get some'"


def damaged(path, content, read, what="."):
    path.write_bytes(content)
    with pytest.raises(data.DataError, match=what) as error:
        read(path)
    one_sentence(error, path, REMEDY)


def read_images(path):
    return formats.read_idx(path, 3, REMEDY)


IDX = idx(np.arange(24).reshape(2, 3, 4))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "begins with nothing"),
        (b"<html>", "begins with 3c68746d"),
        (bytes([0, 0, 8, 1]) + IDX[4:], "not with 00000803"),  # of one dimension
        (bytes([0, 0, 13, 3]) + IDX[4:], "not with 00000803"),  # of floats
        (IDX[:10], "ends in its header"),
        (IDX[:-1], "should hold 24 bytes after its header and holds 23"),
        (IDX + b"?", "should hold 24 bytes after its header and holds more"),
        (IDX[:4] + b"\xff" * 12 + IDX[16:], "which cannot be"),
        (IDX[:4] + b"\0" * 12, "which cannot be"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(value)} bytes",
)
def test_damaged_idx_files(tmp_path, content, what):
    damaged(tmp_path / "images", content, read_images, what)
    damaged(tmp_path / "images.gz", gzip.compress(content), read_images, what)


def test_packed_idx_files_that_are_cut_or_changed_anywhere(tmp_path):
    packed = gzip.compress(IDX, mtime=0)
    path = tmp_path / "images.gz"
    for length in range(len(packed)):
        damaged(path, packed[:length], read_images)
    for place in [0, 1, 2, *range(10, len(packed))]:  # the rest of the header means nothing here
        changed = bytearray(packed)
        changed[place] ^= 0x55
        damaged(path, bytes(changed), read_images)
    damaged(path, packed + b"more", read_images)
    damaged(path, IDX, read_images)  # not packed at all
    path.write_bytes(packed)
    assert read_images(path).tolist() == np.arange(24).reshape(2, 3, 4).tolist()


def read_rows(path):
    return formats.read_matlab(path, "sarcos_inv", 28, REMEDY)


@pytest.mark.parametrize("packed", [False, True])
def test_matlab_files_that_are_cut_anywhere(tmp_path, packed):
    write_sarcos(tmp_path, sarcos_rows(30), do_compression=packed)
    path = tmp_path / "sarcos/sarcos_inv.mat"
    content = path.read_bytes()
    for length in [*range(240), *range(240, len(content), 97), len(content) - 1]:
        damaged(path, content[:length], read_rows)
    damaged(path, b"<html>404</html>" * 100, read_rows, "is not a MATLAB file of version 5")
    later = content[:124] + bytes([0, 2]) + content[126:]
    damaged(path, later, read_rows, "is a MATLAB file of version 0x0200")


@pytest.mark.parametrize("packed", [False, True])
def test_matlab_files_that_are_changed_anywhere(tmp_path, packed):
    """Read or refused, never anything else; SciPy's reader dies of some of these."""
    write_sarcos(tmp_path, sarcos_rows(3), do_compression=packed)
    path = tmp_path / "sarcos/sarcos_inv.mat"
    content = path.read_bytes()
    random = np.random.RandomState(0)
    refused = 0
    for place in [*range(124, 200), *range(200, len(content), 29)] * 4:
        changed = bytearray(content)
        changed[place] = random.randint(256)
        path.write_bytes(changed)
        try:
            assert read_rows(path).shape == (3, 28)
        except data.DataError as error:
            refused += 1
            assert REMEDY in str(error)
    assert refused > 100


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_matlab_numbers_of_every_kind_are_what_scipy_reads(tmp_path, kind, packed):
    for shape in [(4, 28), (1, 1), (0, 28), (2, 3, 4)]:
        matrix = np.random.RandomState(0).uniform(0, 100, shape).astype(kind)
        savemat(tmp_path / "a.mat", {"other": "text", "x": matrix}, do_compression=packed)
        expected = loadmat(tmp_path / "a.mat")["x"]
        read = read_matrix((tmp_path / "a.mat").read_bytes(), "x")
        assert read.dtype == np.float64
        assert read.shape == expected.shape
        assert np.array_equal(read, expected)


def test_matlab_files_of_the_other_byte_order():
    def element(kind, content):
        return struct.pack(">II", kind, len(content)) + content.ljust(-len(content) % 8, b"\0")

    rows = np.arange(6.0).reshape(2, 3)
    body = element(6, struct.pack(">II", 6, 0)) + element(5, struct.pack(">ii", 2, 3))
    body += struct.pack(">HH4s", 1, 1, b"x") + element(9, rows.astype(">f8").tobytes("F"))
    content = bytes(124) + struct.pack(">H", 0x0100) + b"MI" + element(14, body)
    assert np.array_equal(read_matrix(content, "x"), rows)


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        (sarcos_rows(5)[:, :27], "has 5 x 27 numbers, not rows of 28"),
        (np.full((5, 28), np.nan), "not finite"),
        (np.full((5, 28), "text"), "something else than a matrix of real numbers"),
        (np.full((5, 28), 1j), "something else than a matrix of real numbers"),
        ({"a": 1.0}, "something else than a matrix of real numbers"),
        (np.zeros((0, 28)), "has 0 x 28 numbers"),
    ],
)
def test_matlab_files_with_something_else_in_them(tmp_path, rows, what):
    write_sarcos(tmp_path, rows)
    path = tmp_path / "sarcos/sarcos_inv.mat"
    damaged(path, path.read_bytes(), read_rows, what)


def test_a_matlab_file_without_the_variable(tmp_path):
    write_sarcos(tmp_path, sarcos_rows(5))
    with pytest.raises(data.DataError, match="has no variable 'sarcos_inv_test'"):
        formats.read_matlab(tmp_path / "sarcos/sarcos_inv.mat", "sarcos_inv_test", 28, REMEDY)


def read_batch(path):
    return formats.read_cifar(path, REMEDY)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "has 0 bytes"),
        (bytes(3072), "has 3,072 bytes, not a multiple of 3,073"),
        (bytes(3073) + b"\0", "has 3,074 bytes"),
        (b"\x0a" + bytes(3072), "has a label 10, not 0 to 9"),
    ],
)
def test_damaged_binary_batches(tmp_path, content, what):
    damaged(tmp_path / "data_batch_1.bin", content, read_batch, what)


PIXELS = np.arange(2 * 3072).reshape(2, 3072).astype(np.uint8)
BATCH = python_2_batch([3, 7], PIXELS)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not a batch of the Python version"),
        (BATCH.replace(b"u1", b"i1"), "pixels are not bytes"),
        (python_2_batch([3], PIXELS), "1 labels, pixels of shape"),
        (python_2_batch([3, 10], PIXELS), "a label is not from 0 to 9"),
        (pickle.dumps({"data": PIXELS, "labels": [3, 2**70]}, 4), "a label is not from 0 to 9"),
        (python_2_batch([3, 7], PIXELS[:, :3000]), r"shape \(2, 3000\)"),
        (python_2_batch([], PIXELS[:0]), "0 labels"),
        (pickle.dumps({"data": PIXELS.tolist(), "labels": [3, 7]}), "not a batch"),
        (pickle.dumps([1, 2]), "not a batch"),
        (b"\x80\2}r\xff\xff\xff\x7f.", "it numbers an object 2147483647"),  # room for 17 GB
        (pickle.dumps({"data": bytearray(9)}, 5), "the opcode BYTEARRAY8"),
        (pickle.dumps({"a": 1}), "not a batch"),
        (pickle.dumps({"data": np.array([print], dtype=object), "labels": [3]}), "asks for"),
    ],
)
def test_damaged_python_batches(tmp_path, content, what):
    damaged(tmp_path / "data_batch_1", content, read_batch, what)


def test_python_batches_that_are_cut_anywhere(tmp_path):
    path = tmp_path / "data_batch_1"
    for length in [*range(280), *range(280, len(BATCH), 97), len(BATCH) - 1]:
        damaged(path, BATCH[:length], read_batch)
    path.write_bytes(BATCH)
    assert read_batch(path)[:, 0].tolist() == [3, 7]
    assert np.array_equal(read_batch(path)[:, 1:], PIXELS)


def test_python_batches_of_today(tmp_path):
    """Written again by Python 3 and the NumPy of today."""
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({"data": PIXELS, "labels": [3, 7]}, protocol=4))
    assert np.array_equal(read_batch(path), np.insert(PIXELS, 0, [3, 7], axis=1))


class Trap:
    """Runs code when it is unpickled."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("protocol", range(6))
def test_no_pickle_can_run_code(tmp_path, protocol):
    canary = tmp_path / "canary"
    for trap in (
        Trap(os.mkdir, str(canary)),
        Trap(eval, f"__import__('os').mkdir({str(canary)!r})"),
    ):
        content = pickle.dumps({"data": trap, "labels": [1]}, protocol)
        damaged(tmp_path / "data_batch_1", content, read_batch, "it asks for")
        assert not canary.exists()
        pickle.loads(content)  # it would have
        canary.rmdir()
