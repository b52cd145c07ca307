"""Whole data sets from archives and tables, and the command ``data``, over loopback HTTP."""

import hashlib
import os
import sys

import pytest
from cocd_paper import cli as _cli
from cocd_paper import data
from cocd_paper.data import install, sources
from cocd_paper.data.contents import Place, place
from cocd_paper.data.fetch import matches
from cocd_paper.data.sources import File
from data_files import (
    Site,
    checksum,
    cifar_batches,
    digits,
    idx,
    one_sentence,
    refused,
    tar_gz,
    tree,
    write_cifar_binary,
)

REMEDY = "run 'cocd-paper data get some'"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


# --- whole data sets -----------------------------------------------------------------------


@pytest.fixture
def cifar(monkeypatch):
    """A site with a small CIFAR-10, the table that leads to it, and its batches."""
    batches = cifar_batches()
    members = {f"cifar-10-batches-bin/{name}.bin": b.tobytes() for name, b in batches.items()}
    for name, records in batches.items():
        monkeypatch.setitem(sources.CONTENT, name, checksum(records.tobytes())[7:])
    hostile = {"../outside.txt": b"!", "cifar-10-batches-bin/batches.meta.txt": b"airplane"}
    archive = tar_gz({**hostile, **members})
    with Site({"/cifar-10-binary.tar.gz": archive}) as site:
        sums = {path: checksum(content) for path, content in members.items()}
        name = "cifar-10-binary.tar.gz"
        file = File(name, (f"{site.url}/{name}",), checksum(archive, "md5"), sums)
        monkeypatch.setattr(install, "SOURCES", {"cifar10": (file,)})
        yield site, batches, file


def test_an_archive_is_unpacked_by_name_and_removed(cifar, tmp_path):
    _, batches, _ = cifar
    folder = tmp_path / "data"
    assert install.get("cifar10", Place(folder))
    expected = [f"cifar-10-batches-bin/{name}.bin" for name in sorted(batches)]
    assert tree(tmp_path) == ["data", "data/cifar-10-batches-bin", *(f"data/{e}" for e in expected)]
    assert len(data.cifar10(data=folder).train_x) == 5 * 8


def test_only_what_is_missing_or_damaged_is_replaced(cifar, tmp_path):
    site, batches, _ = cifar
    write_cifar_binary(tmp_path, batches)
    assert not install.get("cifar10", Place(tmp_path))
    assert site.requests == []
    kept, damaged = (tmp_path / f"cifar-10-batches-bin/data_batch_{i}.bin" for i in (1, 2))
    before = kept.stat().st_mtime_ns
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    assert install.get("cifar10", Place(tmp_path))
    assert kept.stat().st_mtime_ns == before
    assert damaged.read_bytes() == batches["data_batch_2"].tobytes()


def test_an_archive_put_there_by_hand_is_used(cifar, tmp_path):
    site, _, file = cifar
    (tmp_path / file.path).write_bytes(site.files[f"/{file.path}"])
    assert install.get("cifar10", Place(tmp_path))
    assert site.requests == []
    assert not (tmp_path / file.path).exists()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (tar_gz({"dir/a": b"other bytes"}), "another checksum"),
        (tar_gz({"dir/b": b"right bytes"}), "has no dir/a"),
        (tar_gz({"dir/a": "/etc/hostname"}), "has no dir/a"),  # a link is not a file
        (tar_gz({"dir/a": b"right bytes"})[:60], "damaged"),
        (b"not an archive", "damaged"),
    ],
    ids=["other", "missing", "link", "cut", "none"],  # an archive holds the time it was made at
)
def test_a_wrong_archive_in_one_sentence(tmp_path, content, what):
    archive = tmp_path / "some.tar.gz"
    archive.write_bytes(content)
    with pytest.raises(data.DataError, match=what) as error:
        install.unpack(archive, {"dir/a": checksum(b"right bytes")}, REMEDY)
    one_sentence(error, "some.tar.gz", REMEDY)
    assert not list(tmp_path.rglob("a*"))


# --- the command ---------------------------------------------------------------------------


def test_the_command_gets_a_set_once_and_says_where_it_is(cifar, tmp_path, capsys):
    arguments = ["cifar10", "--data", str(tmp_path)]
    assert _cli.main(["data", "get", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"cifar10: complete in {tmp_path}\n"
    assert captured.err.startswith("cifar-10-binary.tar.gz: ")
    assert _cli.main(["data", "get", *arguments]) == 0
    assert capsys.readouterr().out == f"cifar10: already complete in {tmp_path}\n"
    assert _cli.main(["data", "status", "--data", str(tmp_path)]) == 1  # the others are missing
    capsys.readouterr()
    assert _cli.main(["data", "status", "cifar10", "--data", str(tmp_path)]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "cifar10" in line)
    assert row.split() == [
        "cifar10",
        "complete",
        "0.1",
        "MB",
        str(tmp_path / "cifar-10-batches-bin"),
    ]


def test_it_works_without_rich(cifar, tmp_path, capsys, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert _cli.main(["data", "get", "cifar10", "--data", str(tmp_path)]) == 0
    assert _cli.main(["data", "status", "cifar10", "--data", str(tmp_path)]) == 0


def test_it_draws_a_bar_on_a_terminal(cifar, tmp_path, capsys, monkeypatch):
    pytest.importorskip("rich", reason="the bar is rich's")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    assert _cli.main(["data", "get", "cifar10", "--data", str(tmp_path)]) == 0
    assert "━" in capsys.readouterr().err


def test_a_failing_download_is_one_sentence_and_the_others_are_tried(tmp_path, capsys, monkeypatch):
    url = refused()
    table = {name: (File(f"{name}/some.bin", (url,), checksum(b"bytes")),) for name in data.NAMES}
    monkeypatch.setattr(install, "SOURCES", table)
    assert _cli.main(["data", "get", "all", "--data", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("cocd-paper data: some.bin could not") for line in lines] == [True] * 3
    assert tree(tmp_path) == []


def test_status_tells_missing_from_damaged(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COCD_DATA", str(tmp_path))
    images, labels = digits(5)
    (tmp_path / "mnist").mkdir()
    for prefix in ("train", "t10k"):
        (tmp_path / f"mnist/{prefix}-images-idx3-ubyte").write_bytes(idx(images)[:-1])
        (tmp_path / f"mnist/{prefix}-labels-idx1-ubyte").write_bytes(idx(labels))
    assert _cli.main(["data", "status"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["sarcos", "missing"],
        ["mnist", "damaged"],
        ["cifar10", "missing"],
    ]
    assert lines[5].endswith("run 'cocd-paper data get mnist'")


def test_status_of_a_set_that_there_is_not(capsys):
    with pytest.raises(SystemExit) as ended:
        _cli.main(["data", "status", "imagenet"])
    assert ended.value.code == 2
    assert "'imagenet' is none of sarcos, mnist, cifar10" in capsys.readouterr().err


def test_a_name_it_does_not_know(capsys):
    with pytest.raises(SystemExit):
        _cli.main(["data", "get", "iris"])
    assert "invalid choice: 'iris'" in capsys.readouterr().err


# --- the table -----------------------------------------------------------------------------


def test_every_file_of_the_table_goes_where_the_loaders_look():
    assert set(sources.SOURCES) == set(data.NAMES)
    for files in sources.SOURCES.values():
        for file in files:
            assert len(file.urls) >= 2
            assert all(url.startswith(("http://", "https://")) for url in file.urls)
            assert all(url.endswith("/" + file.path.rpartition("/")[2]) for url in file.urls)
            kind, _, value = file.checksum.partition(":")
            assert len(value) == 2 * hashlib.new(kind).digest_size


@pytest.mark.parametrize("name", ["sarcos", "cifar10"])
def test_the_tables_checksums_are_those_of_the_real_files(name):
    folder = place().folder
    files = {file.path: file.checksum for file in sources.SOURCES[name] if not file.members}
    for file in sources.SOURCES[name]:
        files.update(file.members or {})
    if "COCD_DATA" not in os.environ or not all((folder / path).is_file() for path in files):
        pytest.skip(f"COCD_DATA names no folder with {name}")
    for path, expected in files.items():
        assert matches(folder / path, expected), path
