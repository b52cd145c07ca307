"""Where the files come from, and what they must be: official addresses, mirrors, checksums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .places import CIFAR_BINARY, CIFAR_TEST, CIFAR_TRAIN


@dataclass(frozen=True)
class File:
    """A file to download.

    Attributes:
        path: Its place under the data folder.
        urls: The official address, then mirrors.
        checksum: ``"sha256:..."`` or ``"md5:..."``, of the file as it is served.
        members: For an archive that is unpacked and then removed: the checksum of each file in
            it that is kept, by its name in the archive, which is its place under the data folder.
    """

    path: str
    urls: tuple[str, ...]
    checksum: str
    members: Mapping[str, str] | None = None


# SHA-256 of what the files hold, as rows of little-endian numbers: the same whether a file is
# packed or not, and for both versions of CIFAR-10.
CONTENT = {
    "sarcos_inv": "8fc98eae78955aa0e3788e977d6f89f18965ffd7fb91ef139871b71490945ec6",
    "sarcos_inv_test": "864dfd244626920ad1994a9aaecd5fa55fad8f7d4792bb3eb6dfe9bcaa28d817",
    "train-images-idx3-ubyte": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
    "train-labels-idx1-ubyte": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
    "t10k-images-idx3-ubyte": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
    "t10k-labels-idx1-ubyte": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}


def _sarcos(name: str, sha256: str) -> File:
    official = f"http://www.gaussianprocess.org/gpml/data/{name}"
    mirrors = (
        f"https://gaussianprocess.org/gpml/data/{name}",
        f"https://web.archive.org/web/2023id_/{official}",
    )
    return File(f"sarcos/{name}", (official, *mirrors), f"sha256:{sha256}")


def _mnist(name: str, sha256: str) -> File:
    mirrors = (
        f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}",
        f"https://storage.googleapis.com/cvdf-datasets/mnist/{name}",
    )
    return File(f"mnist/{name}", mirrors, f"sha256:{sha256}")


SOURCES: Mapping[str, tuple[File, ...]] = {
    "sarcos": (
        _sarcos(
            "sarcos_inv.mat", "b8a249733253ba6097372fedee7696833fcf30de42037d5b4a7227f21a6d1d97"
        ),
        _sarcos(
            "sarcos_inv_test.mat",
            "161a59b5c3b4f4b404584323f181607b2acbe620eb134dc720760dc3f38f5cec",
        ),
    ),
    # The site that MNIST was published on no longer serves it: the mirrors of two frameworks.
    "mnist": (
        _mnist(
            "train-images-idx3-ubyte.gz",
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        _mnist(
            "train-labels-idx1-ubyte.gz",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        _mnist(
            "t10k-images-idx3-ubyte.gz",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        _mnist(
            "t10k-labels-idx1-ubyte.gz",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    "cifar10": (
        File(
            "cifar-10-binary.tar.gz",
            (
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/"
                "cifar-10-binary.tar.gz",
            ),
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
            members={
                f"{CIFAR_BINARY}/{batch}.bin": f"sha256:{CONTENT[batch]}"
                for batch in (*CIFAR_TRAIN, *CIFAR_TEST)
            },
        ),
    ),
}
