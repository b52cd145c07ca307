"""Downloads that can be cut off at any moment: parts, checksums, mirrors.

What arrives is appended to ``NAME.part``. It gets its name only when it is complete, has the right
checksum and is on the disk, so a file under its own name is never half a file. A part that is found
is continued where the server can do that. Whether it still belongs to the server's file is not
asked: if the checksum of a continued file is wrong, it is fetched again from the start.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast
from urllib.parse import urlsplit

from cocd.errors import DataError

from .sources import File

Report = Callable[[int, "int | None"], None]  # bytes so far; of how many, if that is known

ATTEMPTS = 5  # at one mirror, as long as each brings the file further
BLOCK = 1 << 16
TIMEOUT = 30.0  # seconds in which a server must send something


def download(
    file: File, folder: Path, remedy: str, *, timeout: float = TIMEOUT, report: Report | None = None
) -> None:
    """Put `file` under `folder`, from the first of its addresses that has it.

    Raises `DataError`, with what each of them answered, if none has; a part that has arrived
    stays, to be continued by the next call.
    """
    target = folder / file.path
    part = target.with_name(target.name + ".part")
    failures = []
    with _prepared(target.parent):
        for url in file.urls:
            try:
                _from_mirror(url, part, file.checksum, timeout, report or _silent)
            except _MirrorError as error:
                failures.append(f"{urlsplit(url).netloc} {error}")
                continue
            keep(part, target)
            return
        kept = f"; what has arrived is kept in {part.name}" if _size(part) else ""
        if not kept:
            part.unlink(missing_ok=True)  # an answer without content
        raise DataError(
            f"{target.name} could not be downloaded ({'; '.join(failures)}{kept}): check the "
            f"network and {remedy} again, or fetch {file.urls[0]} by other means and put it there "
            f"as {target}"
        )


class _MirrorError(Exception):
    """What an address did instead of sending the file."""


def _silent(done: int, total: int | None) -> None:
    """Report nothing."""


def _from_mirror(url: str, part: Path, checksum: str, timeout: float, report: Report) -> None:
    """Complete `part` from one address, continuing as often as that gets further."""
    for _ in range(ATTEMPTS):
        before = _size(part)
        try:
            _transfer(url, part, timeout, report)
        except _MirrorError as error:
            if _size(part) <= before:
                raise
            reason = error
            continue
        if matches(part, checksum):
            return
        part.unlink()
        reason = _MirrorError("sent a file with another checksum")
        if not before:
            raise reason
    raise reason


def _transfer(url: str, part: Path, timeout: float, report: Report) -> None:
    """One request: append what is missing to `part`, or write it anew if the server sends all."""
    offset = _size(part)
    response = _request(url, offset, timeout)
    if response is None:  # nothing behind the offset: the part is complete, or not of this file
        return
    with response:
        done = offset if response.status == 206 else 0
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else None
        with writing(part), part.open("ab" if done else "wb") as sink:
            for block in _blocks(response):
                sink.write(block)
                sink.flush()
                done += len(block)
                report(done, total)
    if total is not None and done < total:
        raise _MirrorError(f"ended after {done:,} of {total:,} bytes")


def _request(url: str, offset: int, timeout: float) -> http.client.HTTPResponse | None:
    """The answer to a request for everything from `offset` on; None if there is nothing."""
    headers = {"User-Agent": "cocd", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    try:
        answer = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=timeout
        )
        return cast(http.client.HTTPResponse, answer)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and offset:
            return None
        raise _MirrorError(f"answered {error.code} {error.reason}".rstrip()) from None
    except (OSError, http.client.HTTPException) as error:
        raise _MirrorError(_reason(error)) from None


def _blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            block = response.read1(BLOCK)
        except (OSError, http.client.HTTPException) as error:
            raise _MirrorError(_reason(error)) from None
        if not block:
            return
        yield block


def _reason(error: BaseException) -> str:
    inner = getattr(error, "reason", error)
    if isinstance(inner, TimeoutError):
        return "did not answer in time"
    if isinstance(inner, http.client.RemoteDisconnected | http.client.IncompleteRead):
        return "closed the connection"
    text = inner.strerror if isinstance(inner, OSError) and inner.strerror else str(inner)
    return f"could not be reached ({text or type(inner).__name__})"


def matches(path: Path, checksum: str) -> bool:
    """Whether the file has the checksum, ``"sha256:..."`` or ``"md5:..."``."""
    kind, _, expected = checksum.partition(":")
    digest = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest() == expected


def keep(part: Path, target: Path) -> None:
    """Give a complete part its name, once its bytes are on the disk."""
    with writing(target):
        with part.open("rb+") as stream:
            os.fsync(stream.fileno())
        os.replace(part, target)
        if os.name == "posix":  # elsewhere a folder cannot be opened, nor need it be
            descriptor = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Trouble with the disk in one sentence; trouble with the network passes."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write {path} ({error.strerror or error}): make room, or name another folder "
            "with --data"
        ) from None


@contextmanager
def _prepared(folder: Path) -> Iterator[None]:
    """The folder, made if need be and held by this process; removed again if it stays empty."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with _held(folder):
            yield
    finally:
        for each in made:
            if any(each.iterdir()):
                break
            each.rmdir()


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep other processes from writing the same parts, where the system can lock a folder.

    The lock ends with the process, however it ends.
    """
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                f"another process is downloading to {folder}: wait until it has ended"
            ) from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def copy_stream(source: IO[bytes], path: Path) -> None:
    """Write everything that `source` has to `path`; what `source` raises is passed on."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        sink = path.open("wb")
    with sink:
        while block := source.read(1 << 20):
            with writing(path):
                sink.write(block)
