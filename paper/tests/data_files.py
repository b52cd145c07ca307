"""Small files of the official formats, and a loopback server that misbehaves on demand."""

from __future__ import annotations

import gzip
import hashlib
import io
import socket
import struct
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.io import savemat

Array = npt.NDArray[Any]


def sarcos_rows(rows: int, seed: int = 0) -> Array:
    return np.random.RandomState(seed).normal(3.0, 2.0, (rows, 28))


def write_sarcos(folder: Path, train: Any, test: Any = None, **options: Any) -> None:
    (folder / "sarcos").mkdir(parents=True, exist_ok=True)
    savemat(folder / "sarcos/sarcos_inv.mat", {"sarcos_inv": train}, **options)
    if test is not None:
        savemat(folder / "sarcos/sarcos_inv_test.mat", {"sarcos_inv_test": test}, **options)


def idx(array: Array) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def digits(rows: int, seed: int = 0) -> tuple[Array, Array]:
    random = np.random.RandomState(seed)
    return random.randint(0, 256, (rows, 28, 28)).astype(np.uint8), random.randint(0, 10, rows)


def write_mnist(folder: Path, train: int = 60, test: int = 10) -> None:
    (folder / "mnist").mkdir(parents=True, exist_ok=True)
    for seed, (rows, prefix) in enumerate([(train, "train"), (test, "t10k")]):
        images, labels = digits(rows, seed)
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            path = folder / f"mnist/{prefix}-{name}-ubyte"
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(idx(array)))


def cifar_batches(rows: int = 8) -> dict[str, Array]:
    """The records of the six batches, by name: a label byte, then 3,072 pixel bytes."""
    random = np.random.RandomState(5)
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    records = {name: random.randint(0, 256, (rows, 3073)).astype(np.uint8) for name in names}
    for batch in records.values():
        batch[:, 0] %= 10
    return records


def write_cifar_binary(folder: Path, batches: dict[str, Array]) -> None:
    (folder / "cifar-10-batches-bin").mkdir(parents=True, exist_ok=True)
    for name, records in batches.items():
        (folder / f"cifar-10-batches-bin/{name}.bin").write_bytes(records.tobytes())


def tar_gz(members: dict[str, bytes | str]) -> bytes:
    """A packed archive; a value that is a string makes a symbolic link to that place."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def one_sentence(error: pytest.ExceptionInfo[BaseException], *words: object) -> None:
    """Whether a caught error is one line that has all of `words`."""
    text = str(error.value)
    assert "\n" not in text
    for word in words:
        assert str(word) in text


def checksum(content: bytes, kind: str = "sha256") -> str:
    return f"{kind}:{hashlib.new(kind, content).hexdigest()}"


def tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def refused() -> str:
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/"


@contextmanager
def site(files: Mapping[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """Files over HTTP on this machine: the address and a list that the requests are added to."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            content = files.get(self.path)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
