"""An archive is built once per content, again when it is damaged, and deleted after two weeks without use."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from bramley.app.agent_bundle import agent_archives
from bramley.app.agent_bundle.archive import Archive, ArchiveSpec, Source, Tree, pack, write_tree
from bramley.host.agent_archive import Kind, Platform

ABOUT = ArchiveSpec(
    Kind.INTERPRETER, name="python", release="3.11.1", platform=Platform.LINUX_X86_64, python="3.11"
)
FILES: dict[str, Source] = {"lib/os.py": b"one"}


@dataclass
class CountingBuilder:
    """Builds archives and counts them."""

    scratch: Path
    count: int = 0
    files: Tree = field(default_factory=lambda: FILES)

    def make(self, folder: Path) -> Archive:
        self.count += 1
        stage = self.scratch / str(self.count)
        write_tree(self.files, stage)
        return pack(stage, ABOUT, folder)

    def once(self, cache: Path) -> Archive:
        return agent_archives.cached_archive(cache, Kind.INTERPRETER, self.files, self.make)


def test_archive_is_built_once_per_content(tmp_path: Path) -> None:
    builder, cache = CountingBuilder(tmp_path / "scratch"), tmp_path / "a" / "cache"

    first, second = builder.once(cache), builder.once(cache)

    assert builder.count == 1
    assert second == first
    assert first.path.is_relative_to(cache)
    assert [place.name for place in cache.iterdir()] == [first.path.parent.name]


def test_other_content_is_another_archive_and_the_first_is_kept(tmp_path: Path) -> None:
    first = CountingBuilder(tmp_path / "one").once(tmp_path / "cache")
    other = CountingBuilder(tmp_path / "two", files={"lib/os.py": b"two"}).once(tmp_path / "cache")

    assert other.manifest.version != first.manifest.version
    assert first.path.is_file()


def test_damaged_archive_is_built_again(tmp_path: Path) -> None:
    builder = CountingBuilder(tmp_path / "scratch")
    first = builder.once(tmp_path / "cache")
    first.path.write_bytes(b"")

    second = builder.once(tmp_path / "cache")

    assert (second, builder.count) == (first, 2)
    assert second.path.stat().st_size == first.size


def test_archive_of_a_concurrent_process_is_used(tmp_path: Path) -> None:
    cache, faster = tmp_path / "cache", CountingBuilder(tmp_path / "faster")

    def make(folder: Path) -> Archive:
        faster.once(cache)
        return CountingBuilder(tmp_path / "slower").make(folder)

    found = agent_archives.cached_archive(cache, Kind.INTERPRETER, FILES, make)

    assert found == faster.once(cache)
    assert faster.count == 1
    assert len(list(cache.iterdir())) == 1


def test_entries_without_use_for_two_weeks_are_deleted(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    old, recent = (
        CountingBuilder(tmp_path / name, files={"lib/os.py": name.encode()})
        for name in ("old", "recent")
    )
    forgotten, used = old.once(cache).path.parent, recent.once(cache).path.parent
    now = time.time()
    os.utime(forgotten, (now, now - agent_archives.UNUSED_AFTER_SECONDS - 60))
    os.utime(used, (now, now - agent_archives.UNUSED_AFTER_SECONDS + 3600))

    CountingBuilder(tmp_path / "new").once(cache)

    assert not forgotten.exists()
    assert used.exists()


def test_use_of_an_archive_keeps_it(tmp_path: Path) -> None:
    builder, cache = CountingBuilder(tmp_path / "scratch"), tmp_path / "cache"
    place = builder.once(cache).path.parent
    os.utime(place, (0, 0))

    builder.once(cache)
    CountingBuilder(tmp_path / "other", files={"lib/os.py": b"other"}).once(cache)

    assert place.exists()
    assert builder.count == 1


def test_cache_is_complete_with_both_archives(tmp_path: Path) -> None:
    (tmp_path / ".making-x/made").mkdir(parents=True)
    (tmp_path / ".making-x/made/half.tar.gz").touch()
    assert not agent_archives.is_cached(tmp_path)

    for kind in Kind:
        (tmp_path / f"{kind}-0123").mkdir()
        assert not agent_archives.is_cached(tmp_path)
        (tmp_path / f"{kind}-0123/a.tar.gz").touch()

    assert agent_archives.is_cached(tmp_path)
