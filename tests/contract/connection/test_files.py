"""Files through every connection: the old one or the new one, with its owner and mode, and as the questions tell it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bramley.api.names.host import SEAL
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.host.commands import (
    Command,
    Find,
    Folder,
    Link,
    LookAt,
    Probe,
    Remove,
    Rename,
    Seal,
    Stream,
    Write,
)
from bramley.host.facts import FILE, FOLDER, LINK, Answer, Found
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


async def fails(stage: Stage, command: Command, told: str) -> None:
    with pytest.raises(errors.CommandFailed, match=told) as caught:
        await stage.mac.do(command)
    assert str(caught.value).startswith(f"{stage.mac.host}: {command.purpose}: ")


@every_target
async def test_a_file_is_written_replaced_and_told_as_it_is(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        name = "it's a file"
        await stage.mac.do(write(stage, name, b"old"))
        await stage.mac.do(write(stage, name))
        path = f"{stage.folder}/{name}"
        asked: dict[Probe, Answer] = {
            LookAt(path, as_root=True): CONTENT,
            LookAt(path, as_root=True, most=3): CONTENT[:3],
            LookAt(path, as_root=True, only=b"\0it"): CONTENT,
            LookAt(path, as_root=True, only=b"other"): b"",
            LookAt(f"{path}.none", as_root=True): None,
            LookAt(stage.folder): None,
            Find(path): Found(FILE, 0o640, stage.owner, len(CONTENT)),
            Find(path, digest=True): Found(FILE, 0o640, stage.owner, len(CONTENT), digest=DIGEST),
            Find(f"{path}.none"): None,
        }

        assert (await stage.mac.look(list(asked))).answers == asked
        assert (stage.real / name).read_bytes() == CONTENT
        assert [entry.name for entry in stage.real.iterdir()] == [name]


@every_target
async def test_a_file_that_is_refused_leaves_the_old_one(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        await stage.mac.do(write(stage, "f", b"old"))
        await stage.mac.do(
            Folder(path=f"{stage.folder}/folder", purpose="make it", owner=stage.owner)
        )
        canary = Secret("canary-31337")

        await fails(
            stage,
            write(stage, "f", canary, check=("false", "{}")),
            "false does not accept the new file",
        )
        await fails(stage, write(stage, "none/f", canary), "the folder .*/none is not there")
        await fails(stage, write(stage, "folder", canary), "is a folder")

        assert (stage.real / "f").read_bytes() == b"old"
        assert sorted(entry.name for entry in stage.real.iterdir()) == ["f", "folder"]


@every_target
async def test_folders_links_names_and_removals(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        here, owner = stage.folder, stage.owner
        for one in ("1.0", "2.0"):
            await stage.mac.do(
                Folder(path=f"{here}/{one}/bin", purpose="make it", mode=0o700, owner=owner)
            )
            await stage.mac.do(Link(path=f"{here}/current", target=one, purpose="point"))
        await stage.mac.do(write(stage, "1.0/f"))
        await stage.mac.do(write(stage, "g", b"other"))
        await stage.mac.do(Rename(path=f"{here}/1.0/f", to=f"{here}/g", purpose="rename"))
        await fails(stage, Link(path=f"{here}/1.0", target="x", purpose="point"), "is a folder")
        await fails(
            stage, Rename(path=f"{here}/g", to=f"{here}/1.0", purpose="rename"), "is a folder"
        )
        for _ in range(2):
            await stage.mac.do(Remove(path=f"{here}/1.0", purpose="remove"))

        await stage.mac.do(Seal(path=f"{here}/2.0", purpose="seal"))
        await fails(stage, Seal(path=f"{here}/1.0", purpose="seal"), "is not there")
        sealed = (Find(f"{here}/2.0", digest=True), LookAt(f"{here}/2.0/{SEAL}", as_root=True))

        seen = await stage.mac.look(sealed)
        whole = seen.found(sealed[0])
        assert whole
        assert seen.file(sealed[1]) == f"{whole.digest}\n".encode()
        asked: dict[Probe, Answer] = {
            Find(f"{here}/2.0/bin"): Found(FOLDER, 0o700, owner),
            Find(f"{here}/2.0"): Found(FOLDER, 0o755, owner),
            Find(f"{here}/current", digest=True): Found(LINK, owner=owner, target="2.0"),
            Find(f"{here}/g", digest=True): Found(FILE, 0o640, owner, len(CONTENT), digest=DIGEST),
            Find(f"{here}/1.0"): None,
        }
        assert (await stage.mac.look(list(asked))).answers == asked


@every_target
async def test_an_artifact_is_brought_and_one_that_changed_on_disk_is_not(
    target: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    content = bytes(range(256)) * 2000
    source.write_bytes(content)
    async with ready(target, tmp_path) as stage:
        artifact = await stage.depot.take(source, name="agent", version="1.2.3")
        path = f"{stage.folder}/agent"
        stream = Stream(
            artifact=artifact, path=path, purpose="bring it", mode=0o755, owner=stage.owner
        )

        await stage.mac.do(stream)

        found = (await stage.mac.look([Find(path, digest=True)])).found(Find(path, digest=True))
        assert found == Found(FILE, 0o755, stage.owner, len(content), digest=artifact.sha256)
        rewrite(source, content[::-1])
        with pytest.raises(errors.BadConfiguration, match="is not the file"):
            await stage.mac.do(stream)
        assert (stage.real / "agent").read_bytes() == content


def rewrite(file: Path, content: bytes) -> None:
    file.write_bytes(content)


@simulated_targets
async def test_a_command_whose_answer_is_lost_may_have_been_done(
    target: str, tmp_path: Path
) -> None:
    async with ready(target, tmp_path) as stage:
        stage.lose_answer()
        with pytest.raises(errors.HostUnreachable):
            await stage.mac.do(write(stage, "f"))
        assert (stage.real / "f").read_bytes() == CONTENT

        await stage.mac.do(Remove(path=f"{stage.folder}/f", purpose="go on"))
