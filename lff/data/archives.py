"""Reading archives that are not trusted: members by exact name, in memory, sizes bounded.

Nothing is ever extracted to a path that an archive chose, so `../` and links lead nowhere.
"""

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

UNPACKED = 1 << 30  # bytes an archive may unpack to; the largest that is read has 184 MB


class Refused(Exception):
    """Something offered as data that is not what it should be, or a source that has none."""


def read_tar(archive: Path, limits: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """The members named in `limits` (name: most bytes allowed) of a .tar.gz, in archive order."""
    awaited = set(limits)
    largest = max([tarfile.RECORDSIZE, *limits.values()])
    try:
        with (
            _Bounded(archive, largest) as stream,
            tarfile.open(fileobj=stream, mode="r:") as tar,
        ):
            while awaited and (member := tar.next()) is not None:
                if member.name not in awaited:
                    continue
                if not member.isreg():
                    raise Refused(f"{archive.name}: {member.name} is not a regular file")
                _bound(archive, member.name, member.size, limits[member.name])
                awaited.remove(member.name)
                yield member.name, tar.extractfile(member).read()
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
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
    except (zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, RuntimeError) as error:
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


class _Bounded(gzip.GzipFile):
    """An unpacked .gz that gives no more bytes at once, or in all, than there should be.

    A tar header may name any length for itself, which `tarfile` would read into memory.
    """

    def __init__(self, archive: Path, largest: int):
        super().__init__(archive)
        self.archive, self.largest = archive, largest

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self.largest:
            raise Refused(f"{self.archive.name}: a part of more than {self.largest:,} bytes")
        return super().read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        if offset > UNPACKED:
            raise Refused(f"{self.archive.name}: more than {UNPACKED:,} bytes")
        return super().seek(offset, whence)


def _bound(archive: Path, member: str, size: int, limit: int) -> None:
    if size > limit:
        raise Refused(f"{archive.name}: {member} has more than the {limit:,} bytes expected")
