"""The agent's code and interpreter: a release runs once it has answered, the one before stays, older ones go."""

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
from bramley.sim.macos.faults import Cut, Moment
from bramley.sim.macos.mac import Mac
from tests.unit.host.steps import wanted
from tests.unit.host.steps.cutting import PASSWORD, Scene, cut_everywhere
from tests.unit.host.steps.wanted import AGENT, NEWER_AGENT, NEWER_PYTHON, PYTHON

ROOT = "/opt/tart-kubelet"
NEWEST_AGENT = "0.3.0+eeeeeeeeeeee"


def release(folder: Path, version: str = AGENT, python: str = PYTHON) -> list[Step]:
    """Return the steps of one release and its interpreter."""
    return [
        Interpreter(wanted.interpreter(folder, python)),
        Agent(wanted.agent(folder, version, python=python), python),
    ]


def leads_to(line: ModelConnection, link: str) -> str:
    return str(line.mac.files.at(link, follow=False).readlink())


async def test_a_bare_mac_gets_both(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path)

    await converge.apply(line, release(tmp_path))

    assert leads_to(line, f"{ROOT}/current") == f"{ROOT}/{AGENT}"
    assert leads_to(line, "/usr/local/bin/tart-kubelet") == f"{ROOT}/current/bin/tart-kubelet"
    assert line.mac.files.names(ROOT) == [AGENT, "current", "python"]
    assert line.mac.files.names(f"{ROOT}/python") == [PYTHON]


async def test_it_is_switched_to_after_it_has_answered(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, *release(tmp_path))

    await converge.apply(line, release(tmp_path, NEWER_AGENT))

    done = wanted.done(line)
    answered = done.index(f"{ROOT}/.agent.incoming/bin/tart-kubelet --version")
    switched = done.index(f"link {ROOT}/current -> {ROOT}/{NEWER_AGENT}")
    assert answered < done.index(f"rename {ROOT}/.agent.incoming {ROOT}/{NEWER_AGENT}") < switched
    assert leads_to(line, f"{ROOT}/current") == f"{ROOT}/{NEWER_AGENT}"


async def test_one_that_does_not_answer_is_never_switched_to(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, *release(tmp_path))
    dead = stand_ins.archive({"bin/tart-kubelet": b"not executable\n"})
    broken = Agent(wanted.artifact(tmp_path, "tart-kubelet", NEWER_AGENT, dead), PYTHON)

    with pytest.raises(CommandFailed, match="answer before it is used"):
        await converge.apply(line, [broken])

    assert leads_to(line, f"{ROOT}/current") == f"{ROOT}/{AGENT}"
    assert f"{ROOT}/{NEWER_AGENT}" not in line.mac.files.names(ROOT)


async def test_one_release_of_before_is_kept_with_its_interpreter(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, *release(tmp_path))
    foreign = f"{ROOT}/notes-of-somebody"
    line.mac.files.write(foreign, b"keep me")

    await converge.apply(line, release(tmp_path, NEWER_AGENT, NEWER_PYTHON))
    both = line.mac.files.names(f"{ROOT}/python")
    await converge.apply(line, release(tmp_path, NEWEST_AGENT, NEWER_PYTHON))

    assert both == [PYTHON, NEWER_PYTHON]
    assert leads_to(line, f"{ROOT}/previous") == f"{ROOT}/{NEWER_AGENT}"
    kept = [NEWER_AGENT, NEWEST_AGENT, "current", "notes-of-somebody", "previous", "python"]
    assert line.mac.files.names(ROOT) == kept
    assert line.mac.files.names(f"{ROOT}/python") == [NEWER_PYTHON]


async def test_an_interpreter_outlives_releases(tmp_path: Path) -> None:
    """Another one has another signature, which loses what macOS has granted to it."""
    line = await wanted.mac(tmp_path, *release(tmp_path))

    await converge.apply(line, release(tmp_path, NEWER_AGENT))

    assert not [text for text in wanted.done(line) if f"{ROOT}/python/" in text]


async def test_without_a_manifest_no_interpreter_goes(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, *release(tmp_path))
    line.mac.files.write(f"{ROOT}/{AGENT}/manifest.json", b"{broken")

    await converge.apply(line, release(tmp_path, NEWER_AGENT, NEWER_PYTHON))

    assert line.mac.files.names(f"{ROOT}/python") == [PYTHON, NEWER_PYTHON]


async def test_going_back_brings_nothing(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, *release(tmp_path), *release(tmp_path, NEWER_AGENT))

    await converge.apply(line, release(tmp_path))

    assert leads_to(line, f"{ROOT}/current") == f"{ROOT}/{AGENT}"
    assert leads_to(line, f"{ROOT}/previous") == f"{ROOT}/{NEWER_AGENT}"
    assert not [text for text in wanted.done(line) if text.startswith("stream ")]


@pytest.mark.parametrize(
    "file", [f"{AGENT}/manifest.json", f"{AGENT}/{host.SEAL}", f"python/{PYTHON}/bin/python3"]
)
async def test_a_folder_that_somebody_has_damaged_is_made_whole_wherever_the_line_was_cut(
    file: str, tmp_path: Path
) -> None:
    def damage(mac: Mac) -> None:
        mac.files.remove(f"{ROOT}/{file}")

    sudo: Step = Sudo("m1", Secret(PASSWORD))
    scene = await Scene.make(tmp_path / "macs", sudo, *release(tmp_path), change=damage)

    await cut_everywhere(scene, release(tmp_path))

    whole = scene.copy("last")
    await converge.apply(whole, release(tmp_path))
    assert whole.mac.files.exists(f"{ROOT}/{file}")
    assert set(whole.mac.files.names(ROOT)) == {AGENT, "current", "python"}
    assert whole.mac.files.names(f"{ROOT}/python") == [PYTHON]


async def test_an_archive_that_came_whole_before_a_cut_is_not_sent_again(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path)
    line.faults.at(4, Cut(Moment.BEFORE))
    with pytest.raises(HostUnreachable, match="unpack python"):
        await converge.apply(line, release(tmp_path))
    line.done.clear()

    await converge.apply(line, release(tmp_path))

    sent = [text for text in wanted.done(line) if text.startswith("stream ")]
    assert sent == [f"stream tart-kubelet {ROOT}/.agent.incoming.tar.gz 0644 root:wheel"]


async def test_the_program_of_an_older_kind_of_agent_makes_place(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path)
    line.mac.files.make_folder("/usr/local/bin")
    line.mac.files.write("/usr/local/bin/tart-kubelet", b"\xcf\xfa\xed\xfe", mode=0o755)

    await converge.apply(line, release(tmp_path))

    assert leads_to(line, "/usr/local/bin/tart-kubelet") == f"{ROOT}/current/bin/tart-kubelet"


@pytest.mark.parametrize("version", ["", "../../etc", ".hidden", "1 2", "a/b", "x" * 200])
def test_a_version_is_the_name_of_a_folder(tmp_path: Path, version: str) -> None:
    archive = wanted.artifact(tmp_path, "tart-kubelet", "x", b"")
    odd = type(archive)(name="x", version=version, path=archive.path, size=0, sha256=archive.sha256)

    with pytest.raises(InvalidSpec, match="version"):
        Agent(odd)
    with pytest.raises(InvalidSpec, match="version"):
        Interpreter(odd)


def test_each_is_a_part_of_its_own(tmp_path: Path) -> None:
    interpreter, agent = release(tmp_path)
    _, newer = release(tmp_path, NEWER_AGENT)

    parts = [step.desired() for step in (interpreter, agent, newer)]
    assert [part.part for part in parts if part] == ["interpreter", "agent", "agent"]
    assert len({part.stamp for part in parts if part}) == 3
