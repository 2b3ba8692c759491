"""Reading archives that are not trusted: members by exact name, in memory, sizes bounded.

Nothing is ever extracted to a path that an archive chose, so `../` and links lead nowhere.
"""

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path


class Refused(Exception):
    """Something offered as data that is not what it should be, or a source that has none."""


def read_tar(archive: Path, limits: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """The members named in `limits` (name: most bytes allowed) of a .tar.gz, in archive order."""
    awaited = set(limits)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            while awaited and (member := tar.next()) is not None:
                if member.name not in awaited:
                    continue
                if not member.isreg():
                    raise Refused(f"{archive.name}: {member.name} is not a regular file")
                _bound(archive, member.name, member.size, limits[member.name])
                awaited.remove(member.name)
                yield member.name, tar.extractfile(member).read()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise Refused(f"{archive.name}: {error}") from error
    if awaited:
        raise Refused(f"{archive.name} has no {', '.join(sorted(awaited))}")


def read_zip(archive: Path, member: str, limit: int) -> bytes:
    """One member of a zip file (a wheel is one), of at most `limit` bytes."""
    try:
        with zipfile.ZipFile(archive) as bundle:
            info = bundle.getinfo(member)
            _bound(archive, member, info.file_size, limit)
            with bundle.open(info) as stream:
                content = stream.read(limit + 1)
    except KeyError as error:
        raise Refused(f"{archive.name} has no {member}") from error
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise Refused(f"{archive.name}: {error}") from error
    _bound(archive, member, len(content), limit)
    return content


def gunzip(archive: Path, limit: int) -> bytes:
    """The content of a .gz file, of at most `limit` bytes."""
    try:
        with gzip.open(archive) as stream:
            content = stream.read(limit + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Refused(f"{archive.name}: {error}") from error
    _bound(archive, "its content", len(content), limit)
    return content


def _bound(archive: Path, member: str, size: int, limit: int) -> None:
    if size > limit:
        raise Refused(f"{archive.name}: {member} has more than the {limit:,} bytes expected")
