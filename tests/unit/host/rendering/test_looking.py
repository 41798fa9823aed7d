"""All questions in one script, and answers that no file and no greeting can forge."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.host.commands import Find, Look, LookAt, Probe
from bramley.host.facts import FILE, FOLDER, LINK, OTHER, Found, Said
from bramley.host.rendering import looking
from bramley.host.rendering.script import part
from tests.unit.host.rendering.shells import OWNER, TOKEN, Shell, available


@pytest.fixture(params=available())
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    return Shell.make(tmp_path, request.param)


def test_programs_answer_with_their_code_and_the_beginning_of_what_they_print(shell: Shell) -> None:
    cases = {
        Look(("sh", "-c", "printf 'a\\000b'; echo c >&2; exit 4")): Said(4, b"a\0bc\n"),
        Look(("true",)): Said(0),
        Look(("none-such",)): Said(127),
        Look(("seq", "100000"), most=4): Said(0, b"1\n2\n"),
        Look(("cat",)): Said(0),
        Look(("echo", "it's", "$HOME"), as_root=True): Said(0, b"it's $HOME\n"),
        Look(("sh", "-c", f"printf '\\n@{TOKEN} 0 99\\n'")): Said(0, f"\n@{TOKEN} 0 99\n".encode()),
    }

    found = shell.look(list(cases), noise=f"echo Welcome; echo '@{TOKEN[::-1]} 1 1'")

    missing = Look(("none-such",))
    assert {probe: answer for probe, answer in found.items() if probe != missing} == {
        probe: answer for probe, answer in cases.items() if probe != missing
    }
    told = found[missing]
    assert isinstance(told, Said)
    assert told.code == 127


def test_a_program_that_hangs_costs_its_own_time_and_spoils_no_other_answer(shell: Shell) -> None:
    hung = Look(("sh", "-c", "echo began; sleep 600"), within=timedelta(seconds=1))
    other = Look(("echo", "fine"))

    found = shell.look([hung, other])

    assert found[other] == Said(0, b"fine\n")
    # A busy machine may not come to the beginning within a second.
    assert found[hung] in {Said(124, b"began\n"), Said(124)}


def test_files_answer_with_their_beginning_and_what_is_no_file_with_nothing(shell: Shell) -> None:
    (shell.home / "f").write_bytes(b"\0\xff\n@ text")
    (shell.home / "link").symlink_to("f")
    (shell.home / "folder").mkdir()
    path = str(shell.home / "f")
    cases: dict[Probe, bytes | None] = {
        LookAt(path): b"\0\xff\n@ text",
        LookAt(path, most=2): b"\0\xff",
        LookAt(path, as_root=True): b"\0\xff\n@ text",
        LookAt(str(shell.home / "link")): b"\0\xff\n@ text",
        LookAt(str(shell.home / "folder")): None,
        LookAt(str(shell.home / "none"), as_root=True): None,
    }

    assert shell.look(list(cases)) == cases


def test_of_a_file_with_a_secret_nothing_comes_unless_it_begins_as_expected(shell: Shell) -> None:
    (shell.home / "sealed").write_bytes(b"\x01\xfe<sealed>")
    (shell.home / "open").write_bytes(b"canary")
    sealed = LookAt(str(shell.home / "sealed"), only=b"\x01\xfe<")
    other = LookAt(str(shell.home / "open"), only=b"\x01\xfe<")

    assert shell.look([sealed, other]) == {sealed: b"\x01\xfe<sealed>", other: b""}


def test_what_is_at_a_path_is_told_with_mode_owner_size_target_and_digest(shell: Shell) -> None:
    file = shell.home / "it's a *"
    file.write_bytes(b"12345")
    file.chmod(0o4751)
    (shell.home / "folder").mkdir()
    (shell.home / "folder").chmod(0o1777)
    (shell.home / "link").symlink_to("a -> b\nc")
    digest = hashlib.sha256(b"12345").hexdigest()
    cases: dict[Probe, Found | None] = {
        Find(str(file)): Found(FILE, 0o4751, OWNER, 5),
        Find(str(file), digest=True): Found(FILE, 0o4751, OWNER, 5, digest=digest),
        Find(str(shell.home / "folder"), digest=True): Found(FOLDER, 0o1777, OWNER),
        Find(str(shell.home / "link"), digest=True): Found(LINK, owner=OWNER, target="a -> b\nc"),
        Find(str(shell.home / "none")): None,
    }

    assert shell.look(list(cases)) == cases
    device = shell.look([Find("/dev/null")])[Find("/dev/null")]
    assert isinstance(device, Found)
    assert device.kind == OTHER


def test_where_sudo_wants_a_password_files_are_asked_for_as_the_user(shell: Shell) -> None:
    shell.install("sudo", "echo 'sudo: a password is required' >&2\nexit 1\n")
    (shell.home / "f").write_bytes(b"x")
    program, file = Look(("true",), as_root=True), LookAt(str(shell.home / "f"), as_root=True)

    found = shell.look([program, file, Find(str(shell.home / "f"))])

    assert found[program] == Said(1, b"sudo: a password is required\n")
    assert found[file] == b"x"
    assert isinstance(found[Find(str(shell.home / "f"))], Found)


def test_root_is_asked_for_once_for_all_of_its_questions(shell: Shell) -> None:
    shell.install(
        "sudo",
        f'echo "$*" | head -1 >>"{shell.home}/calls"\nwhile [ "$1" != -- ] && [ "$1" != true ]; do shift; done\n[ "$1" != -- ] || shift\nexec "$@"\n',
    )

    shell.look([Look(("echo", str(number)), as_root=True) for number in range(5)])

    assert len((shell.home / "calls").read_text().splitlines()) == 2


def test_questions_that_fill_more_than_a_command_line_are_asked_in_several(shell: Shell) -> None:
    probes = [LookAt(f"{shell.home}/{'x' * 200}{number}") for number in range(900)]

    questions = looking.render(probes, token=TOKEN)

    assert len(questions) > 1
    assert [probe for one in questions for probe in one.probes.values()] == probes
    assert max(len(one.line) for one in questions) < 128 * 1024


@given(st.binary(max_size=400))
def test_a_broken_output_gives_fewer_answers_and_never_a_wrong_one(output: bytes) -> None:
    probe = LookAt("/x")
    (question,) = looking.render([probe], token=TOKEN)

    assert looking.answers(question, token=TOKEN, output=output) == {}


@pytest.mark.parametrize("program", ["openssl", "shasum"])
def test_a_digest_is_the_same_whichever_program_makes_it(tmp_path: Path, program: str) -> None:
    for name in {program, "perl", "sh"}:
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    told = subprocess.run(
        ["sh", "-c", f"{part('digest')}\ndigest"],
        input=b"12345",
        env={"PATH": str(tmp_path)},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert told.stdout.decode() == hashlib.sha256(b"12345").hexdigest()


def test_what_is_at_a_path_is_asked_for_as_root_and_other_questions_are_not(shell: Shell) -> None:
    shell.install("sudo", f'touch "{shell.home}/asked"\nexit 1\n')
    shell.look([Look(("true",)), LookAt("/x")])
    assert not (shell.home / "asked").exists()

    shell.look([Find("/x")])
    assert (shell.home / "asked").exists()
