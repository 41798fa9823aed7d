"""Backups as files: whole and as announced, or refused."""

from __future__ import annotations

import io
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from bramley.apiserver.admin import archives
from bramley.apiserver.admin.archives import Archive, Manifest, Part
from bramley.apiserver.store.sqlite_file import Snapshot
from bramley.app import backup
from bramley.base.errors import BadConfiguration

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONTENT = b"a database" * 1000


def an_archive(**names: bytes) -> Archive:
    needed = {name: name.encode() for name in archives.REQUIRED} | {"bramley.db": CONTENT} | names
    parts = tuple(Part(name, needed[name]) for name in archives.NAMES if name in needed)
    entries = tuple(part.entry() for part in parts)
    return Archive(Manifest(1, "0.1.0", NOW, 7, 3, entries), parts)


def written(path: Path, archive: Archive | None = None) -> bytes:
    content = b"".join((archive or an_archive()).chunks())
    path.write_bytes(content)
    return content


def test_archive_is_private_round_trips_and_is_a_plain_tar(tmp_path: Path) -> None:
    archive = an_archive()
    content = written(tmp_path / "file", archive)
    (tmp_path / "into").mkdir()

    assert archives.unpack(tmp_path / "file", tmp_path / "into") == archive.manifest
    assert archive.size_bytes == len(content)
    assert (tmp_path / "into/bramley.db").read_bytes() == CONTENT
    assert (tmp_path / "into/tls/ca.key").stat().st_mode & 0o777 == 0o600
    with tarfile.open(tmp_path / "file") as tar:
        assert tar.getnames() == ["manifest.json", *archives.REQUIRED]


@pytest.mark.parametrize("part", [0.02, 0.3, 0.6, 0.9])
def test_truncated_archive_is_refused(part: float, tmp_path: Path) -> None:
    content = written(tmp_path / "file")
    (tmp_path / "file").write_bytes(content[: int(len(content) * part)])

    with pytest.raises(BadConfiguration, match="use another backup"):
        archives.check(tmp_path / "file")


def test_every_relevant_changed_byte_is_detected(tmp_path: Path) -> None:
    content = written(tmp_path / "file")
    archives.check(tmp_path / "file")
    start = content.index(CONTENT)
    for place in (0, 600, start, start + 5000, content.index(b"tokens.json", start + len(CONTENT))):
        damaged = bytearray(content)
        damaged[place] ^= 0x01
        (tmp_path / "file").write_bytes(damaged)

        with pytest.raises(BadConfiguration):
            archives.check(tmp_path / "file")


def test_unknown_parts_are_refused(tmp_path: Path) -> None:
    part = Part("../evil", b"content")
    plain = an_archive()
    manifest = msgspec.structs.replace(plain.manifest, parts=(*plain.manifest.parts, part.entry()))
    written(tmp_path / "file", Archive(manifest, (*plain.parts, part)))

    with pytest.raises(BadConfiguration, match="not those of a backup"):
        archives.check(tmp_path / "file")


def test_archive_without_keys_or_of_a_later_format_is_refused(tmp_path: Path) -> None:
    plain = an_archive()
    lacking = msgspec.structs.replace(plain.manifest, parts=plain.manifest.parts[:1])
    written(tmp_path / "file", Archive(lacking, plain.parts[:1]))
    with pytest.raises(BadConfiguration, match=r"lacks tls/ca\.crt"):
        archives.check(tmp_path / "file")

    later = msgspec.structs.replace(plain.manifest, format=2)
    written(tmp_path / "file", Archive(later, plain.parts))
    with pytest.raises(BadConfiguration, match="format 2 is not known"):
        archives.check(tmp_path / "file")


def test_link_instead_of_a_part_is_refused(tmp_path: Path) -> None:
    plain = an_archive()
    content = b"".join(plain.chunks())
    head = content[: content.index(b"bramley.db\0")]
    link = tarfile.TarInfo("bramley.db")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    (tmp_path / "file").write_bytes(head + link.tobuf(tarfile.GNU_FORMAT) + bytes(1024))

    with pytest.raises(BadConfiguration, match="not where it should be"):
        archives.check(tmp_path / "file")


def test_file_that_is_no_tar_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(io.BytesIO(b"text" * 1000).getvalue())

    with pytest.raises(BadConfiguration, match="not a backup"):
        archives.check(tmp_path / "file")


@pytest.mark.parametrize("passed", [timedelta(days=-3), timedelta(), timedelta(days=800)])
def test_restored_revisions_exceed_all_that_a_server_may_have_issued(passed: timedelta) -> None:
    content = Snapshot(1000, {}, {})
    most = int(max(passed, timedelta()).total_seconds()) * 20_000

    step = backup.revision_step(content, made=NOW, now=NOW + passed, before=None)
    known = backup.revision_step(content, made=NOW, now=NOW + passed, before=10**12)

    assert step > most
    assert content.revision + known > 10**12
    assert content.revision + max(step, known) < 2**50
