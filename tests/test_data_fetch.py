"""Downloads over loopback HTTP: cut off, damaged, missing, resumed, and killed in the middle."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from data_files import (
    Site,
    cifar_batches,
    digits,
    drop,
    idx,
    missing,
    no_range,
    nothing,
    other,
    stall,
    tar_gz,
    unmeasured,
    write_cifar_binary,
    wrong_range,
)

from cocd import _cli, data
from cocd.data import install, sources
from cocd.data.contents import Place, place
from cocd.data.fetch import download, matches
from cocd.data.sources import File

CONTENT = np.random.RandomState(1).bytes(300_000)
REMEDY = "run 'cocd data get some'"


def checksum(content, kind="sha256"):
    return f"{kind}:{hashlib.new(kind, content).hexdigest()}"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def site():
    with Site({"/a/some.bin": CONTENT, "/b/some.bin": CONTENT}) as running:
        yield running


def some(site, *mirrors, content=CONTENT):
    urls = tuple(f"{site.url}/{mirror}/some.bin" for mirror in mirrors or "a")
    return File("set/some.bin", urls, checksum(content))


def fetch(file, folder, **options):
    download(file, folder, REMEDY, **options)
    return (folder / file.path).read_bytes()


def tree(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def refused():
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/some.bin"


# --- what works ----------------------------------------------------------------------------


def test_a_file_arrives_with_its_checksum_and_nothing_beside_it(site, tmp_path):
    reports = []
    assert fetch(some(site), tmp_path, report=lambda *two: reports.append(two)) == CONTENT
    assert tree(tmp_path) == ["set", "set/some.bin"]
    assert reports[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)


def test_a_connection_that_drops_midway_is_continued_where_it_ended(site, tmp_path):
    site.tricks["/a/some.bin"] = [drop(100_000), drop(50_000)]
    assert fetch(some(site), tmp_path) == CONTENT
    assert [rest for _, rest in site.requests] == [None, "bytes=100000-", "bytes=150000-"]


def test_a_part_is_continued_by_a_later_call(site, tmp_path):
    site.tricks["/a/some.bin"] = [drop(70_000), nothing]
    with pytest.raises(data.DataError, match="arrived is kept in some"):
        fetch(some(site), tmp_path)
    assert (tmp_path / "set/some.bin.part").read_bytes() == CONTENT[:70_000]
    site.requests.clear()
    assert fetch(some(site), tmp_path) == CONTENT
    assert site.requests == [("/a/some.bin", "bytes=70000-")]
    assert tree(tmp_path) == ["set", "set/some.bin"]


def test_a_server_without_ranges_sends_it_all_again(site, tmp_path):
    site.tricks["/a/some.bin"] = [drop(100_000), no_range]
    assert fetch(some(site), tmp_path) == CONTENT
    assert len(site.requests) == 2


def test_a_server_that_sends_another_range_than_the_rest(site, tmp_path):
    site.tricks["/a/some.bin"] = [drop(100_000), wrong_range]
    assert fetch(some(site), tmp_path) == CONTENT
    assert [rest for _, rest in site.requests] == [None, "bytes=100000-", None]


def test_a_file_that_changed_since_its_part_was_fetched_is_fetched_anew(site, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/some.bin.part").write_bytes(b"of last year" * 1000)
    assert fetch(some(site), tmp_path) == CONTENT
    assert [rest for _, rest in site.requests] == ["bytes=12000-", None]


@pytest.mark.parametrize("extra", [b"", b"and more"])
def test_a_part_that_is_complete_or_too_long(site, tmp_path, extra):
    """Killed between the last byte and the renaming; or of a longer file."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set/some.bin.part").write_bytes(CONTENT + extra)
    assert fetch(some(site), tmp_path) == CONTENT
    assert len(site.requests) == (2 if extra else 1)


def test_the_second_mirror_is_asked_where_the_first_has_nothing(site, tmp_path):
    site.tricks["/a/some.bin"] = [missing]
    assert fetch(some(site, "a", "b"), tmp_path) == CONTENT
    assert [path for path, _ in site.requests] == ["/a/some.bin", "/b/some.bin"]


def test_the_second_mirror_continues_what_the_first_began(site, tmp_path):
    site.tricks["/a/some.bin"] = [drop(100_000), missing]
    assert fetch(some(site, "a", "b"), tmp_path) == CONTENT
    assert site.requests[-1] == ("/b/some.bin", "bytes=100000-")


def test_a_file_whose_length_is_not_announced(site, tmp_path):
    site.tricks["/a/some.bin"] = [unmeasured]
    reports = []
    assert fetch(some(site), tmp_path, report=lambda *two: reports.append(two)) == CONTENT
    assert reports[-1] == (len(CONTENT), None)


# --- what does not -------------------------------------------------------------------------


def one_sentence(error, *words):
    text = str(error.value)
    assert "\n" not in text
    for word in words:
        assert word in text


def test_wrong_bytes_are_thrown_away(site, tmp_path):
    site.tricks["/a/some.bin"] = [other(CONTENT[::-1])]
    with pytest.raises(data.DataError, match="another checksum") as error:
        fetch(some(site), tmp_path)
    by_hand = f"{site.url}/a/some.bin by other means and put it there as {tmp_path}"
    one_sentence(error, "some.bin", REMEDY, by_hand)
    assert tree(tmp_path) == []


def test_wrong_bytes_from_one_mirror_do_not_stop_the_next(site, tmp_path):
    site.tricks["/a/some.bin"] = [other(b"<html>Log in to the hotel's network</html>")]
    assert fetch(some(site, "a", "b"), tmp_path) == CONTENT


def test_a_truncated_file_is_thrown_away(site, tmp_path):
    """The server has half of it and believes that to be all."""
    site.tricks["/a/some.bin"] = [other(CONTENT[:1000])]
    with pytest.raises(data.DataError, match="another checksum"):
        fetch(some(site), tmp_path)
    assert tree(tmp_path) == []


def test_a_server_that_always_stops_early_is_given_up(site, tmp_path):
    site.tricks["/a/some.bin"] = [drop(10)] * 100
    with pytest.raises(data.DataError, match="ended after 50 of 300,000 bytes"):
        fetch(some(site), tmp_path)
    assert len(site.requests) == 5


def test_no_network_leaves_nothing_behind(tmp_path):
    url = refused()
    file = File("set/some.bin", (url, url), checksum(CONTENT))
    folder = tmp_path / "not" / "there yet"
    with pytest.raises(data.DataError, match="refused") as error:
        fetch(file, folder)
    one_sentence(error, "some.bin could not be downloaded", url, REMEDY, "check the network")
    assert tree(tmp_path) == []


def test_a_silent_server_is_given_up_in_time(site, tmp_path):
    site.tricks["/a/some.bin"] = [stall(0)]
    with pytest.raises(data.DataError, match="did not answer in time"):
        fetch(some(site), tmp_path, timeout=0.2)
    assert tree(tmp_path) == []


def test_a_file_that_is_there_survives_a_failing_download(site, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/some.bin").write_bytes(b"damaged, but better than nothing")
    site.tricks["/a/some.bin"] = [missing]
    with pytest.raises(data.DataError, match="answered 404 Not Found"):
        fetch(some(site), tmp_path)
    assert (tmp_path / "set/some.bin").read_bytes() == b"damaged, but better than nothing"


def test_a_folder_that_cannot_be_made(site, tmp_path):
    (tmp_path / "set").write_text("a file, not a folder")
    with pytest.raises(data.DataError, match=r"cannot write .*set.*name another folder") as error:
        fetch(some(site), tmp_path)
    one_sentence(error)
    assert site.requests == []


def test_two_processes_do_not_write_the_same_part(site, tmp_path):
    fcntl = pytest.importorskip("fcntl", reason="locks of folders need a POSIX system")
    (tmp_path / "set").mkdir()
    descriptor = os.open(tmp_path / "set", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(data.DataError, match="another process is downloading"):
            fetch(some(site), tmp_path)
    finally:
        os.close(descriptor)
    assert fetch(some(site), tmp_path) == CONTENT


def test_killed_in_the_middle_and_resumed(site, tmp_path):
    """kill -9 once 100,000 bytes are reported; the next process asks for the rest alone."""
    site.tricks["/a/some.bin"] = [stall(100_000)]
    file = some(site)
    script = f"""
        from pathlib import Path
        from cocd.data.fetch import download
        from cocd.data.sources import File

        file = File({file.path!r}, {file.urls!r}, {file.checksum!r})
        report = lambda done, total: print(done, flush=True)
        download(file, Path({str(tmp_path)!r}), "", report=report)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if int(line) == 100_000:
                process.kill()
                break
    assert process.returncode == (-signal.SIGKILL if os.name == "posix" else 1)
    assert tree(tmp_path) == ["set", "set/some.bin.part"]
    assert fetch(file, tmp_path) == CONTENT
    assert site.requests[-1] == ("/a/some.bin", "bytes=100000-")
    assert tree(tmp_path) == ["set", "set/some.bin"]


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
    assert _cli.main(["data", "status", "--data", str(tmp_path)]) == 0
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
    assert _cli.main(["data", "status", "--data", str(tmp_path)]) == 0


def test_it_draws_a_bar_on_a_terminal(cifar, tmp_path, capsys, monkeypatch):
    pytest.importorskip("rich", reason="the bar is rich's")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    assert _cli.main(["data", "get", "cifar10", "--data", str(tmp_path)]) == 0
    assert "━" in capsys.readouterr().err


def test_a_failing_download_is_one_sentence_and_the_others_are_tried(tmp_path, capsys, monkeypatch):
    url = refused()
    table = {name: (File(f"{name}/some.bin", (url,), checksum(CONTENT)),) for name in data.NAMES}
    monkeypatch.setattr(install, "SOURCES", table)
    assert _cli.main(["data", "get", "all", "--data", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("cocd data: some.bin could not") for line in lines] == [True] * 3
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
    assert lines[5].endswith("run 'cocd data get mnist'")


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
