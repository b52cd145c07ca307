"""Downloads over loopback HTTP: cut off, damaged, missing, resumed, and killed in the middle."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from cocd_paper import data
from cocd_paper.data.fetch import download
from cocd_paper.data.sources import File
from data_files import (
    Site,
    checksum,
    drop,
    missing,
    no_range,
    nothing,
    one_sentence,
    other,
    refused,
    stall,
    tree,
    unmeasured,
    wrong_range,
)

CONTENT = np.random.RandomState(1).bytes(300_000)
REMEDY = "run 'cocd-paper data get some'"


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
        from cocd_paper.data.fetch import download
        from cocd_paper.data.sources import File

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
