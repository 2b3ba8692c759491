"""Archives that were made to do harm, or are simply broken, are refused and write nothing."""

import gzip
import io
import tarfile
import zipfile

import pytest

from lff.data.archives import Refused, gunzip, read_tar, read_zip


def make_tar(path, members):
    """A .tar.gz of (name, content) or of ready TarInfo members."""
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return path


def link(name, target, kind):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_tar_gives_exactly_the_members_asked_for(tmp_path):
    members = [("package/a", b"1"), ("package/b", b"22"), ("a", b"3"), ("package/c", b"4")]
    archive = make_tar(tmp_path / "x.tgz", members)
    found = list(read_tar(archive, {"package/b": 2, "package/a": 10}))
    assert found == [("package/a", b"1"), ("package/b", b"22")]


def test_tar_member_with_a_path_upwards_is_never_written(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    archive = make_tar(inner / "x.tgz", [("../evil", b"x"), ("/tmp/evil-lff", b"x"), ("a", b"1")])
    assert list(read_tar(archive, {"a": 1})) == [("a", b"1")]
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["inner", "x.tgz"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_tar_member_that_is_no_regular_file_is_refused(tmp_path, kind):
    archive = make_tar(tmp_path / "x.tgz", [link("a", "/etc/passwd", kind)])
    with pytest.raises(Refused, match="a is not a regular file"):
        list(read_tar(archive, {"a": 1000}))


def test_tar_member_larger_than_expected_is_refused(tmp_path):
    archive = make_tar(tmp_path / "x.tgz", [("a", bytes(1001))])
    with pytest.raises(Refused, match="a has more than the 1,000 bytes"):
        list(read_tar(archive, {"a": 1000}))


def test_tar_without_the_member_names_it(tmp_path):
    archive = make_tar(tmp_path / "x.tgz", [("b", b"")])
    with pytest.raises(Refused, match=r"x\.tgz has no a"):
        list(read_tar(archive, {"a": 1, "b": 1}))


@pytest.mark.parametrize("cut", [0, 10, 60])
def test_truncated_tar_is_refused(tmp_path, cut):
    archive = make_tar(tmp_path / "x.tgz", [("a", bytes(range(256)) * 40)])
    archive.write_bytes(archive.read_bytes()[:cut])
    with pytest.raises(Refused, match=r"x\.tgz"):
        list(read_tar(archive, {"a": 100_000}))


def test_zip_member_by_name_within_its_bound(tmp_path):
    archive = tmp_path / "x.whl"
    with zipfile.ZipFile(archive, "w") as bundle:
        bundle.writestr("../evil", b"x")
        bundle.writestr("data/a.csv", b"12345")
    assert read_zip(archive, "data/a.csv", 5) == b"12345"
    with pytest.raises(Refused, match="more than the 4 bytes"):
        read_zip(archive, "data/a.csv", 4)
    with pytest.raises(Refused, match=r"has no data/b\.csv"):
        read_zip(archive, "data/b.csv", 5)
    assert [p.name for p in tmp_path.rglob("*")] == ["x.whl"]


def test_zip_that_lies_about_a_size_is_refused(tmp_path):
    archive = tmp_path / "x.whl"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("a", bytes(100_000))
    honest, lie = (100_000).to_bytes(4, "little"), (10).to_bytes(4, "little")
    archive.write_bytes(archive.read_bytes().replace(honest, lie))
    with pytest.raises(Refused):
        read_zip(archive, "a", 10)


def test_gz_within_its_bound(tmp_path):
    archive = tmp_path / "a.gz"
    archive.write_bytes(gzip.compress(b"12345"))
    assert gunzip(archive, 5) == b"12345"
    with pytest.raises(Refused, match="more than the 4 bytes"):
        gunzip(archive, 4)
    archive.write_bytes(archive.read_bytes()[:-6])
    with pytest.raises(Refused, match=r"a\.gz"):
        gunzip(archive, 5)
