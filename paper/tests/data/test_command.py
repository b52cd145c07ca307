"""Downloads and the command ``data``, over loopback HTTP."""

import hashlib
import os

import pytest
from cocd_paper import cli as _cli
from cocd_paper import data
from cocd_paper.data import files
from cocd_paper.data.files import Place, Source
from data_files import checksum, cifar_batches, one_sentence, refused, site, tar_gz, tree

NAME = "cifar-10-binary.tar.gz"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def cifar(monkeypatch):
    """A site with a small CIFAR-10, where the command looks for it."""
    content = {f"cifar-10-batches-bin/{n}.bin": b.tobytes() for n, b in cifar_batches().items()}
    sums = {path: checksum(part)[7:] for path, part in content.items()}
    monkeypatch.setattr(files, "FILES", {**files.FILES, "cifar10": sums})
    archive = tar_gz({"../outside.txt": b"!", "cifar-10-batches-bin/readme.html": b"", **content})
    with site({f"/{NAME}": archive}) as (url, requests):
        found = Source([refused(), url], (NAME, checksum(archive, "md5")))
        monkeypatch.setattr(files, "SOURCES", {**files.SOURCES, "cifar10": found})
        yield content, requests


def test_an_archive_is_fetched_from_the_second_mirror_unpacked_by_name_and_removed(cifar, tmp_path):
    content, _ = cifar
    folder = tmp_path / "data"
    assert files.get("cifar10", Place(folder))
    expected = ["data", "data/cifar-10-batches-bin", *sorted(f"data/{path}" for path in content)]
    assert tree(tmp_path) == expected
    assert len(data.cifar10(data=folder).train_x) == 5 * 8


def test_only_what_is_missing_or_damaged_is_replaced(cifar, tmp_path):
    content, requests = cifar
    files.get("cifar10", Place(tmp_path))
    assert not files.get("cifar10", Place(tmp_path)) and len(requests) == 1
    kept, damaged = (tmp_path / f"cifar-10-batches-bin/data_batch_{i}.bin" for i in (1, 2))
    before = kept.stat().st_mtime_ns
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    assert files.get("cifar10", Place(tmp_path))
    assert kept.stat().st_mtime_ns == before
    assert damaged.read_bytes() == content["cifar-10-batches-bin/data_batch_2.bin"]


@pytest.mark.parametrize("served", [b"<html>Log in to the hotel's network</html>", None])
def test_a_download_that_fails_is_one_sentence_and_leaves_nothing(served, tmp_path):
    pages = {} if served is None else {f"/{NAME}": served}
    with site(pages) as (url, _):
        source = {"cifar10": Source([url], (NAME, checksum(b"something else", "md5")))}
        with pytest.raises(data.DataError, match="could not be downloaded") as error:
            files.get("cifar10", Place(tmp_path), source)
    one_sentence(error, NAME, url, "check the network", "cocd-paper data get cifar10")
    assert tree(tmp_path) == []


def test_data_get_downloads_a_set_once_and_prints_its_folder(cifar, tmp_path, capsys):
    arguments = ["cifar10", "--data", str(tmp_path)]
    assert _cli.main(["data", "get", *arguments]) == 0
    assert capsys.readouterr().out == f"cifar10: complete in {tmp_path}\n"
    assert _cli.main(["data", "get", *arguments]) == 0
    assert capsys.readouterr().out == f"cifar10: already complete in {tmp_path}\n"
    assert _cli.main(["data", "status", *arguments]) == 0
    assert capsys.readouterr().out.split() == ["cifar10", "complete", str(tmp_path)]
    assert _cli.main(["data", "status", "--data", str(tmp_path)]) == 1  # the others are missing


def test_status_tells_missing_from_damaged(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COCD_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist/train-images-idx3-ubyte.gz").write_bytes(b"?")
    assert _cli.main(["data", "status"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[::2]] == [
        ["sarcos", "missing"],
        ["mnist", "damaged"],
        ["cifar10", "missing"],
    ]
    assert "run 'cocd-paper data get mnist'" in lines[3]


def test_data_get_all_goes_on_after_a_failed_download(tmp_path, capsys, monkeypatch):
    nowhere = {name: Source([refused()], source.archive) for name, source in files.SOURCES.items()}
    monkeypatch.setattr(files, "SOURCES", nowhere)
    assert _cli.main(["data", "get", "all", "--data", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("cocd-paper data: ") for line in lines] == [True] * 3


def test_an_unknown_set_is_refused(capsys):
    with pytest.raises(SystemExit):
        _cli.main(["data", "get", "iris"])
    assert "invalid choice: 'iris'" in capsys.readouterr().err


def test_every_set_has_two_addresses_and_whole_checksums():
    assert set(files.SOURCES) == set(files.FILES) == set(data.NAMES)
    for source in files.SOURCES.values():
        assert len(source.urls) >= 2 and all(url.endswith("/") for url in source.urls)
    for known in files.FILES.values():
        assert all(len(value) == 2 * hashlib.sha256().digest_size for value in known.values())


@pytest.mark.parametrize("name", data.NAMES)
def test_the_real_files_pass(name):
    where = files.place()
    if "COCD_DATA" not in os.environ or not (where.folder / min(files.FILES[name])).is_file():
        pytest.skip(f"COCD_DATA names no folder with {name}")
    assert where.problems(name) == {}
