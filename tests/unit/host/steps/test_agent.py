"""The agent's releases and interpreter: a release is used after it was checked, the previous one is kept, older ones are removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.api.names import host
from bramley.base.errors import CommandFailed, HostUnreachable, InvalidSpec
from bramley.base.secret import Secret
from bramley.host import converge
from bramley.host.step import Step
from bramley.host.steps.agent import Agent
from bramley.host.steps.interpreter import Interpreter
from bramley.host.steps.sudo import Sudo
from bramley.sim.macos import stand_ins
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.faults import Cut, CutPoint
from bramley.sim.macos.mac import Mac
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.fixtures import AGENT, NEWER_AGENT, NEWER_PYTHON, PYTHON
from tests.unit.host.steps.interruption import PASSWORD, MacTemplate, interrupt_everywhere

ROOT = "/opt/tart-kubelet"
NEWEST_AGENT = "0.3.0+eeeeeeeeeeee"


def release(folder: Path, version: str = AGENT, python: str = PYTHON) -> list[Step]:
    """Return the steps of one release and its interpreter."""
    return [
        Interpreter(fixtures.interpreter(folder, python)),
        Agent(fixtures.agent(folder, version, python=python), python),
    ]


def link_target(connection: ModelConnection, link: str) -> str:
    return str(connection.mac.files.at(link, follow=False).readlink())


async def test_bare_mac_gets_agent_and_interpreter(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)

    await converge.apply(connection, release(tmp_path))

    assert link_target(connection, f"{ROOT}/current") == f"{ROOT}/{AGENT}"
    assert (
        link_target(connection, "/usr/local/bin/tart-kubelet") == f"{ROOT}/current/bin/tart-kubelet"
    )
    assert connection.mac.files.names(ROOT) == [AGENT, "current", "python"]
    assert connection.mac.files.names(f"{ROOT}/python") == [PYTHON]


async def test_release_is_switched_to_after_it_was_checked(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, *release(tmp_path))

    await converge.apply(connection, release(tmp_path, NEWER_AGENT))

    done = fixtures.executed(connection)
    checked = done.index(f"{ROOT}/.agent.incoming/bin/tart-kubelet --version")
    switched = done.index(f"link {ROOT}/current -> {ROOT}/{NEWER_AGENT}")
    assert checked < done.index(f"rename {ROOT}/.agent.incoming {ROOT}/{NEWER_AGENT}") < switched
    assert link_target(connection, f"{ROOT}/current") == f"{ROOT}/{NEWER_AGENT}"


async def test_broken_release_is_never_switched_to(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, *release(tmp_path))
    archive = stand_ins.archive({"bin/tart-kubelet": b"not executable\n"})
    broken = Agent(fixtures.artifact(tmp_path, "tart-kubelet", NEWER_AGENT, archive), PYTHON)

    with pytest.raises(CommandFailed, match=r"check that tart-kubelet 0\.2\.0\+b+ runs"):
        await converge.apply(connection, [broken])

    assert link_target(connection, f"{ROOT}/current") == f"{ROOT}/{AGENT}"
    assert f"{ROOT}/{NEWER_AGENT}" not in connection.mac.files.names(ROOT)


async def test_previous_release_is_kept_with_its_interpreter(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, *release(tmp_path))
    foreign = f"{ROOT}/foreign-notes"
    connection.mac.files.write(foreign, b"keep me")

    await converge.apply(connection, release(tmp_path, NEWER_AGENT, NEWER_PYTHON))
    both = connection.mac.files.names(f"{ROOT}/python")
    await converge.apply(connection, release(tmp_path, NEWEST_AGENT, NEWER_PYTHON))

    assert both == [PYTHON, NEWER_PYTHON]
    assert link_target(connection, f"{ROOT}/previous") == f"{ROOT}/{NEWER_AGENT}"
    kept = [NEWER_AGENT, NEWEST_AGENT, "current", "foreign-notes", "previous", "python"]
    assert connection.mac.files.names(ROOT) == kept
    assert connection.mac.files.names(f"{ROOT}/python") == [NEWER_PYTHON]


async def test_interpreter_is_shared_by_releases(tmp_path: Path) -> None:
    """Another interpreter has another signature, which loses the permissions that macOS has granted."""
    connection = await fixtures.mac(tmp_path, *release(tmp_path))

    await converge.apply(connection, release(tmp_path, NEWER_AGENT))

    assert not [text for text in fixtures.executed(connection) if f"{ROOT}/python/" in text]


async def test_no_interpreter_is_removed_without_a_manifest(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, *release(tmp_path))
    connection.mac.files.write(f"{ROOT}/{AGENT}/manifest.json", b"{broken")

    await converge.apply(connection, release(tmp_path, NEWER_AGENT, NEWER_PYTHON))

    assert connection.mac.files.names(f"{ROOT}/python") == [PYTHON, NEWER_PYTHON]


async def test_rollback_uploads_nothing(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, *release(tmp_path), *release(tmp_path, NEWER_AGENT))

    await converge.apply(connection, release(tmp_path))

    assert link_target(connection, f"{ROOT}/current") == f"{ROOT}/{AGENT}"
    assert link_target(connection, f"{ROOT}/previous") == f"{ROOT}/{NEWER_AGENT}"
    assert not [text for text in fixtures.executed(connection) if text.startswith("stream ")]


@pytest.mark.parametrize(
    "file", [f"{AGENT}/manifest.json", f"{AGENT}/{host.SEAL}", f"python/{PYTHON}/bin/python3"]
)
async def test_damaged_folder_is_repaired_despite_any_interruption(
    file: str, tmp_path: Path
) -> None:
    def damage(mac: Mac) -> None:
        mac.files.remove(f"{ROOT}/{file}")

    sudo: Step = Sudo("m1", Secret(PASSWORD))
    template = await MacTemplate.make(tmp_path / "macs", sudo, *release(tmp_path), change=damage)

    await interrupt_everywhere(template, release(tmp_path))

    last = template.copy("last")
    await converge.apply(last, release(tmp_path))
    assert last.mac.files.exists(f"{ROOT}/{file}")
    assert set(last.mac.files.names(ROOT)) == {AGENT, "current", "python"}
    assert last.mac.files.names(f"{ROOT}/python") == [PYTHON]


async def test_complete_archive_is_not_uploaded_again(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)
    connection.faults.at(4, Cut(CutPoint.BEFORE))
    with pytest.raises(HostUnreachable, match="unpack python"):
        await converge.apply(connection, release(tmp_path))
    connection.done.clear()

    await converge.apply(connection, release(tmp_path))

    sent = [text for text in fixtures.executed(connection) if text.startswith("stream ")]
    assert sent == [f"stream tart-kubelet {ROOT}/.agent.incoming.tar.gz 0644 root:wheel"]


async def test_binary_of_an_older_agent_is_replaced_by_the_link(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)
    connection.mac.files.make_folder("/usr/local/bin")
    connection.mac.files.write("/usr/local/bin/tart-kubelet", b"\xcf\xfa\xed\xfe", mode=0o755)

    await converge.apply(connection, release(tmp_path))

    assert (
        link_target(connection, "/usr/local/bin/tart-kubelet") == f"{ROOT}/current/bin/tart-kubelet"
    )


@pytest.mark.parametrize("version", ["", "../../etc", ".hidden", "1 2", "a/b", "x" * 200])
def test_version_must_be_a_folder_name(tmp_path: Path, version: str) -> None:
    archive = fixtures.artifact(tmp_path, "tart-kubelet", "x", b"")
    odd = type(archive)(name="x", version=version, path=archive.path, size=0, sha256=archive.sha256)

    with pytest.raises(InvalidSpec, match="version"):
        Agent(odd)
    with pytest.raises(InvalidSpec, match="version"):
        Interpreter(odd)


def test_agent_and_interpreter_are_separate_parts(tmp_path: Path) -> None:
    interpreter, agent = release(tmp_path)
    _, newer = release(tmp_path, NEWER_AGENT)

    parts = [step.desired() for step in (interpreter, agent, newer)]
    assert [part.part for part in parts if part] == ["interpreter", "agent", "agent"]
    assert len({part.stamp for part in parts if part}) == 3
