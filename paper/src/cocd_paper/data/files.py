"""The official files: where they lie, what they must be, and how they are downloaded.

A file is compared with its checksum before anything in it is read. Downloads are pooch's: a file
under its own name is never half a file.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shlex
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pooch

# Data set -> its files below the data folder, with the SHA-256 of their content, unpacked.
FILES: Mapping[str, Mapping[str, str]] = {
    "sarcos": {
        "sarcos/sarcos_inv.mat": "b8a249733253ba6097372fedee7696833fcf30de42037d5b4a7227f21a6d1d97",
        "sarcos/sarcos_inv_test.mat": (
            "161a59b5c3b4f4b404584323f181607b2acbe620eb134dc720760dc3f38f5cec"
        ),
    },
    "mnist": {
        "mnist/train-images-idx3-ubyte.gz": (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
        ),
        "mnist/train-labels-idx1-ubyte.gz": (
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
        ),
        "mnist/t10k-images-idx3-ubyte.gz": (
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
        ),
        "mnist/t10k-labels-idx1-ubyte.gz": (
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
        ),
    },
    "cifar10": {
        f"cifar-10-batches-bin/{name}.bin": checksum
        for name, checksum in (
            ("data_batch_1", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            ("data_batch_2", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            ("data_batch_3", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            ("data_batch_4", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            ("data_batch_5", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
            ("test_batch", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
        )
    },
}
NAMES = tuple(FILES)
TIMEOUT = 30.0  # seconds in which a server must send something


@dataclass(frozen=True)
class Source:
    """Addresses at which files are found by name, the official one first.

    `archive` is what they serve instead, with its checksum, where that is not the files themselves;
    `packed` has the checksums of files that are served packed.
    """

    urls: Sequence[str]
    archive: tuple[str, str] | None = None
    packed: Mapping[str, str] = field(default_factory=dict)


SOURCES: Mapping[str, Source] = {
    "sarcos": Source(
        (
            "http://www.gaussianprocess.org/gpml/data/",
            "https://gaussianprocess.org/gpml/data/",
            "https://web.archive.org/web/2023id_/http://www.gaussianprocess.org/gpml/data/",
        )
    ),
    # The site that MNIST was published on no longer serves it: the mirrors of two frameworks.
    "mnist": Source(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        packed={
            "mnist/train-images-idx3-ubyte.gz": (
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
            ),
            "mnist/train-labels-idx1-ubyte.gz": (
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
            ),
            "mnist/t10k-images-idx3-ubyte.gz": (
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
            ),
            "mnist/t10k-labels-idx1-ubyte.gz": (
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
            ),
        },
    ),
    "cifar10": Source(
        (
            "https://www.cs.toronto.edu/~kriz/",
            "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",
        ),
        ("cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"),
    ),
}


class DataError(ValueError):
    """A data file is missing, damaged or could not be downloaded; the sentence says what to do."""


@dataclass(frozen=True)
class Place:
    """A data folder; `option` names it on the command line, `check` whether checksums count."""

    folder: Path
    option: str = ""
    check: bool = True

    def remedy(self, name: str) -> str:
        """What to do about a missing or damaged file."""
        return f"run 'cocd-paper data get {name}{self.option}'"

    def read(self, name: str, path: str) -> bytes:
        """The content of a file of the data set `name`, unpacked, if it is the official one."""
        file = self.folder / path
        try:
            content = file.read_bytes()
            if file.suffix == ".gz":
                content = gzip.decompress(content)
        except FileNotFoundError:
            raise DataError(f"{file} is not there: {self.remedy(name)}") from None
        except (OSError, EOFError, zlib.error) as error:
            why = getattr(error, "strerror", None) or error
            raise DataError(f"{file} cannot be read ({why}): {self.remedy(name)}") from None
        if self.check and hashlib.sha256(content).hexdigest() != FILES[name][path]:
            raise DataError(
                f"{file} is not the official file (another checksum): {self.remedy(name)}, or, in "
                "Python, load it with check=False"
            )
        return content

    def problems(self, name: str) -> dict[str, str]:
        """What is wrong with each file of a data set that is not as it should be."""
        found = {}
        for path in FILES[name]:
            try:
                self.read(name, path)
            except DataError as error:
                found[path] = str(error)
        return found


def place(data: str | os.PathLike[str] | None = None, check: bool = True) -> Place:
    """The data folder: `data`, else ``COCD_DATA``, else ``cocd`` in the user's cache folder.

    >>> print(place("my data").remedy("mnist"))
    run 'cocd-paper data get mnist --data "my data"'
    """
    chosen = data if data is not None else os.environ.get("COCD_DATA")
    if data is None:
        option = ""
    else:
        text = os.fspath(data)
        option = f" --data {text}" if shlex.quote(text) == text else f' --data "{text}"'
    try:
        folder = Path(chosen or pooch.os_cache("cocd")).expanduser()
    except RuntimeError:  # there is no home folder
        raise DataError(
            "there is no home folder to look for data in: name a folder with data=, --data or "
            "the environment variable COCD_DATA"
        ) from None
    return Place(folder, option, check)


def get(name: str, where: Place, sources: Mapping[str, Source] | None = None) -> bool:
    """Download what is missing or damaged; False if there was nothing to do."""
    wrong, source = where.problems(name), (sources or SOURCES)[name]
    if not wrong:
        return False
    if source.archive is not None:
        file, checksum = source.archive
        unpack = pooch.Untar(members=list(wrong), extract_dir=str(where.folder))
        archive = _fetch(source.urls, file, checksum, where, name, unpack)
        archive.unlink()
    else:
        for path in wrong:
            checksum = source.packed.get(path, FILES[name][path])
            _fetch(source.urls, path, f"sha256:{checksum}", where, name)
    if still := where.problems(name):
        raise DataError(next(iter(still.values())))
    return True


def _fetch(
    urls: Sequence[str],
    path: str,
    checksum: str,
    where: Place,
    name: str,
    processor: pooch.Untar | None = None,
) -> Path:
    """One file, from the first of the addresses that has it."""
    target, failures = where.folder / path, []
    for url in urls:
        try:
            pooch.retrieve(
                url + target.name,
                checksum,
                target.name,
                target.parent,
                processor,
                pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=TIMEOUT),
            )
        except (OSError, ValueError, KeyError) as error:
            failures.append(
                f"{url}: {(str(error).splitlines() or [type(error).__name__])[0][:200]}"
            )
        else:
            return target
    raise DataError(
        f"{target.name} could not be downloaded ({'; '.join(failures)}): check the network and "
        f"{where.remedy(name)} again, or put the file there by other means as {target}"
    )
