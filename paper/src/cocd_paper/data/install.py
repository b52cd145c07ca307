"""From addresses to a complete data set: what is missing is downloaded, archives are unpacked."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from cocd.errors import DataError

from .contents import Place, inspect
from .fetch import TIMEOUT, Report, copy_stream, download, keep, matches
from .progress import bar
from .sources import SOURCES, File


def get(
    name: str,
    where: Place,
    *,
    sources: Mapping[str, tuple[File, ...]] | None = None,
    timeout: float = TIMEOUT,
    progress: Callable[[str], AbstractContextManager[Report]] = bar,
) -> bool:
    """Complete the data set, by default from `SOURCES`; False if there was nothing to do."""
    parts = inspect(name, where)
    if all(part.state == "complete" for part in parts):
        return False
    good = {path for part in parts if part.state == "complete" for path in part.files}
    for file in (sources or SOURCES)[name]:
        missing = [path for path in file.members or [file.path] if where.folder / path not in good]
        if not missing:
            continue
        target = where.folder / file.path
        if not (target.is_file() and matches(target, file.checksum)):
            with progress(target.name) as report:
                download(file, where.folder, where.remedy(name), timeout=timeout, report=report)
        if file.members:
            unpack(target, {path: file.members[path] for path in missing}, where.remedy(name))
            target.unlink()
    return True


def unpack(archive: Path, members: Mapping[str, str], remedy: str) -> None:
    """Put the named members of a tar archive beside it, each checked; nothing else is unpacked."""
    wanted = dict(members)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for entry in tar:
                if entry.name in wanted and entry.isfile():
                    _unpack_one(tar, entry, archive.parent / entry.name, wanted.pop(entry.name))
    except (tarfile.TarError, EOFError, zlib.error, OSError, _WrongMember) as error:
        raise DataError(f"{archive} is damaged ({error}): remove it and {remedy}") from None
    if wanted:
        raise DataError(f"{archive} has no {min(wanted)}: remove it and {remedy}")


class _WrongMember(Exception):
    """A member does not have its checksum."""


def _unpack_one(tar: tarfile.TarFile, entry: tarfile.TarInfo, target: Path, checksum: str) -> None:
    source = tar.extractfile(entry)
    if source is None:  # the type says so; a regular file always has one
        raise _WrongMember(f"{entry.name} is not a file")
    part = target.with_name(target.name + ".part")
    with source:
        copy_stream(source, part)
    if not matches(part, checksum):
        part.unlink()
        raise _WrongMember(f"{entry.name} has another checksum")
    keep(part, target)
