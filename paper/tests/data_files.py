"""Small files of the official formats, and a loopback server that misbehaves on demand."""

import gzip
import hashlib
import io
import socket
import struct
import tarfile
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from scipy.io import savemat


def sarcos_rows(rows, seed=0):
    return np.random.RandomState(seed).normal(3.0, 2.0, (rows, 28))


def write_sarcos(folder, train, test=None, **options):
    (folder / "sarcos").mkdir(parents=True, exist_ok=True)
    savemat(folder / "sarcos/sarcos_inv.mat", {"sarcos_inv": train}, **options)
    if test is not None:
        savemat(folder / "sarcos/sarcos_inv_test.mat", {"sarcos_inv_test": test}, **options)


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def digits(rows, seed=0):
    random = np.random.RandomState(seed)
    return random.randint(0, 256, (rows, 28, 28)).astype(np.uint8), random.randint(0, 10, rows)


def write_mnist(folder, train=60, test=10, packed=True):
    (folder / "mnist").mkdir(parents=True, exist_ok=True)
    for seed, (rows, prefix) in enumerate([(train, "train"), (test, "t10k")]):
        images, labels = digits(rows, seed)
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            path = folder / f"mnist/{prefix}-{name}-ubyte"
            if packed:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(idx(array)))
            else:
                path.write_bytes(idx(array))


def cifar_batches(rows=8):
    """The records of the six batches, by name: a label byte, then 3,072 pixel bytes."""
    random = np.random.RandomState(5)
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    records = {name: random.randint(0, 256, (rows, 3073)).astype(np.uint8) for name in names}
    for batch in records.values():
        batch[:, 0] %= 10
    return records


def write_cifar_binary(folder, batches):
    (folder / "cifar-10-batches-bin").mkdir(parents=True, exist_ok=True)
    for name, records in batches.items():
        (folder / f"cifar-10-batches-bin/{name}.bin").write_bytes(records.tobytes())


def write_cifar_python(folder, batches):
    (folder / "cifar-10-batches-py").mkdir(parents=True, exist_ok=True)
    for name, records in batches.items():
        content = python_2_batch(records[:, 0].tolist(), records[:, 1:])
        (folder / f"cifar-10-batches-py/{name}").write_bytes(content)


def python_2_batch(labels, pixels):
    """What Python 2 wrote: byte strings as such, and NumPy's modules by their old names."""

    def text(raw):
        return b"U" + bytes([len(raw)]) + raw

    def number(value):
        return b"J" + struct.pack("<i", value)

    raw = pixels.tobytes()
    kind = b"cnumpy\ndtype\n" + text(b"u1") + b"K\0K\1\x87R"
    kind += b"(K\3" + text(b"|") + b"NNN" + number(-1) + number(-1) + b"K\0tb"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85" + text(b"b") + b"\x87R"
    )
    array += b"(K\1" + number(pixels.shape[0]) + number(pixels.shape[1]) + b"\x86" + kind
    array += b"\x89T" + struct.pack("<I", len(raw)) + raw + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    title = text(b"batch_label") + text(b"training batch 1 of 5")
    return b"\x80\2}(" + title + text(b"labels") + numbers + text(b"data") + array + b"u."


def tar_gz(members):
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


def one_sentence(error, *words):
    """Whether a caught error is one line that has all of `words`."""
    text = str(error.value)
    assert "\n" not in text
    for word in words:
        assert str(word) in text


def checksum(content, kind="sha256"):
    return f"{kind}:{hashlib.new(kind, content).hexdigest()}"


def tree(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def refused():
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/some.bin"


class Site:
    """Files over HTTP; `tricks` says, by path, what the next requests get instead of the file."""

    def __init__(self, files):
        self.files = dict(files)
        self.tricks = {}
        self.requests = []  # (path, Range or None)
        self.released = threading.Event()  # ends what `stall` waits for
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.released.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def _handler(self):
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                site.requests.append((self.path, self.headers["Range"]))
                waiting = site.tricks.get(self.path, [])
                trick = waiting.pop(0) if waiting else serve
                with suppress(ConnectionError):  # the client has been killed
                    trick(self, site.files.get(self.path), site)

            def log_message(self, *_):
                pass

        return Handler


def send(handler, code, headers, body):
    handler.send_response(code)
    for key, value in headers.items():
        handler.send_header(key, str(value))
    handler.end_headers()
    handler.wfile.write(body)
    handler.wfile.flush()


def serve(handler, content, site):
    """The file, or the rest of it; 416 where there is no rest."""
    if content is None:
        return missing(handler, content, site)
    start = int((handler.headers["Range"] or "bytes=0-")[6:-1])
    if not start:
        return no_range(handler, content, site)
    if start >= len(content):
        return send(handler, 416, {"Content-Range": f"bytes */{len(content)}"}, b"")
    headers = {
        "Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}",
        "Content-Length": len(content) - start,
    }
    return send(handler, 206, headers, content[start:])


def no_range(handler, content, site):
    """The whole file, whatever was asked for."""
    send(handler, 200, {"Content-Length": len(content)}, content)


def missing(handler, content, site):
    send(handler, 404, {"Content-Length": 0}, b"")


def drop(count):
    """The headers of the whole answer, then `count` bytes of it, then the end."""

    def trick(handler, content, site):
        start = int((handler.headers["Range"] or "bytes=0-")[6:-1])
        rest = content[start:]
        headers = {"Content-Length": len(rest)}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        send(handler, 206 if start else 200, headers, rest[:count])

    return trick


def stall(count):
    """As `drop`, but the connection stays open and silent."""

    def trick(handler, content, site):
        drop(count)(handler, content, site)
        site.released.wait()

    return trick


def other(content):
    """Another file instead."""
    return lambda handler, _, site: serve(handler, content, site)


def wrong_range(handler, content, site):
    """The first bytes, called the rest."""
    send(handler, 206, {"Content-Range": f"bytes 0-9/{len(content)}", "Content-Length": 10},
         content[:10])  # fmt: skip


def nothing(handler, content, site):
    """Closes the connection without an answer."""
    handler.close_connection = True


def unmeasured(handler, content, site):
    """The whole file, without saying how long it is."""
    send(handler, 200, {}, content)
