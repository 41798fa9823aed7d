"""Files through every connection: old or new content, with owner and mode, and the answers of probes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bramley.api.names.host import SEAL
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.host.commands import (
    Command,
    Folder,
    Link,
    Probe,
    ReadFile,
    Remove,
    Rename,
    Seal,
    Stat,
    Stream,
    Write,
)
from bramley.host.facts import FILE, FOLDER, LINK, FileStat, ProbeResult
from tests.contract.connection.targets import Stage, every_target, ready, simulated_targets

CONTENT = b"\0it's $(new)\n\xff"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def write(
    stage: Stage, name: str, content: bytes | Secret = CONTENT, *, check: tuple[str, ...] = ()
) -> Write:
    path = f"{stage.folder}/{name}"
    return Write(
        path=path, content=content, purpose="write it", mode=0o640, owner=stage.owner, check=check
    )


async def fails(stage: Stage, command: Command, message: str) -> None:
    with pytest.raises(errors.CommandFailed, match=message) as caught:
        await stage.mac.execute(command)
    assert str(caught.value).startswith(f"{stage.mac.host}: {command.purpose}: ")


@every_target
async def test_file_is_written_replaced_and_probed(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        name = "it's a file"
        await stage.mac.execute(write(stage, name, b"old"))
        await stage.mac.execute(write(stage, name))
        path = f"{stage.folder}/{name}"
        expected: dict[Probe, ProbeResult] = {
            ReadFile(path, as_root=True): CONTENT,
            ReadFile(path, as_root=True, max_bytes=3): CONTENT[:3],
            ReadFile(path, as_root=True, prefix=b"\0it"): CONTENT,
            ReadFile(path, as_root=True, prefix=b"other"): b"",
            ReadFile(f"{path}.none", as_root=True): None,
            ReadFile(stage.folder): None,
            Stat(path): FileStat(FILE, 0o640, stage.owner, len(CONTENT)),
            Stat(path, digest=True): FileStat(
                FILE, 0o640, stage.owner, len(CONTENT), digest=DIGEST
            ),
            Stat(f"{path}.none"): None,
        }

        assert (await stage.mac.probe(list(expected))).results == expected
        assert (stage.real / name).read_bytes() == CONTENT
        assert [entry.name for entry in stage.real.iterdir()] == [name]


@every_target
async def test_refused_write_keeps_the_old_file(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        await stage.mac.execute(write(stage, "f", b"old"))
        await stage.mac.execute(
            Folder(path=f"{stage.folder}/folder", purpose="make it", owner=stage.owner)
        )
        canary = Secret("canary-31337")

        await fails(
            stage,
            write(stage, "f", canary, check=("false", "{}")),
            "false does not accept the new file",
        )
        await fails(stage, write(stage, "none/f", canary), "the folder .*/none does not exist")
        await fails(stage, write(stage, "folder", canary), "is a folder")

        assert (stage.real / "f").read_bytes() == b"old"
        assert sorted(entry.name for entry in stage.real.iterdir()) == ["f", "folder"]


@every_target
async def test_folders_links_renames_and_removals(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        base, owner = stage.folder, stage.owner
        for one in ("1.0", "2.0"):
            await stage.mac.execute(
                Folder(path=f"{base}/{one}/bin", purpose="create", mode=0o700, owner=owner)
            )
            await stage.mac.execute(Link(path=f"{base}/current", target=one, purpose="point"))
        await stage.mac.execute(write(stage, "1.0/f"))
        await stage.mac.execute(write(stage, "g", b"other"))
        await stage.mac.execute(Rename(path=f"{base}/1.0/f", to=f"{base}/g", purpose="rename"))
        await fails(stage, Link(path=f"{base}/1.0", target="x", purpose="point"), "is a folder")
        await fails(
            stage, Rename(path=f"{base}/g", to=f"{base}/1.0", purpose="rename"), "is a folder"
        )
        for _ in range(2):
            await stage.mac.execute(Remove(path=f"{base}/1.0", purpose="remove"))

        await stage.mac.execute(Seal(path=f"{base}/2.0", purpose="seal"))
        await fails(stage, Seal(path=f"{base}/1.0", purpose="seal"), "does not exist")
        sealed = (Stat(f"{base}/2.0", digest=True), ReadFile(f"{base}/2.0/{SEAL}", as_root=True))

        facts = await stage.mac.probe(sealed)
        folder = facts.stat(sealed[0])
        assert folder
        assert facts.file(sealed[1]) == f"{folder.digest}\n".encode()
        expected: dict[Probe, ProbeResult] = {
            Stat(f"{base}/2.0/bin"): FileStat(FOLDER, 0o700, owner),
            Stat(f"{base}/2.0"): FileStat(FOLDER, 0o755, owner),
            Stat(f"{base}/current", digest=True): FileStat(LINK, owner=owner, target="2.0"),
            Stat(f"{base}/g", digest=True): FileStat(
                FILE, 0o640, owner, len(CONTENT), digest=DIGEST
            ),
            Stat(f"{base}/1.0"): None,
        }
        assert (await stage.mac.probe(list(expected))).results == expected


@every_target
async def test_artifact_is_uploaded_unless_it_changed_on_disk(target: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    content = bytes(range(256)) * 2000
    source.write_bytes(content)
    async with ready(target, tmp_path) as stage:
        artifact = await stage.store.load(source, name="agent", version="1.2.3")
        path = f"{stage.folder}/agent"
        stream = Stream(
            artifact=artifact, path=path, purpose="upload it", mode=0o755, owner=stage.owner
        )

        await stage.mac.execute(stream)

        found = (await stage.mac.probe([Stat(path, digest=True)])).stat(Stat(path, digest=True))
        assert found == FileStat(FILE, 0o755, stage.owner, len(content), digest=artifact.sha256)
        rewrite(source, content[::-1])
        with pytest.raises(errors.BadConfiguration, match="is no longer the file"):
            await stage.mac.execute(stream)
        assert (stage.real / "agent").read_bytes() == content


def rewrite(file: Path, content: bytes) -> None:
    file.write_bytes(content)


@simulated_targets
async def test_command_whose_answer_is_lost_may_have_been_executed(
    target: str, tmp_path: Path
) -> None:
    async with ready(target, tmp_path) as stage:
        stage.lose_answer()
        with pytest.raises(errors.HostUnreachable):
            await stage.mac.execute(write(stage, "f"))
        assert (stage.real / "f").read_bytes() == CONTENT

        await stage.mac.execute(Remove(path=f"{stage.folder}/f", purpose="continue"))
