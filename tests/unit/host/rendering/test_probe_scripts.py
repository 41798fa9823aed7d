"""Probe scripts: all probes in one script, and answers that no file and no login banner can forge."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.api.names import host
from bramley.host.commands import Probe, ReadFile, RunProbe, Seal, Stat
from bramley.host.facts import FILE, FOLDER, LINK, OTHER, FileStat, RunResult
from bramley.host.rendering import probe_scripts, script
from bramley.sim.macos import host_commands
from tests.unit.host.rendering.shells import OWNER, TOKEN, Shell, available


@pytest.fixture(params=available())
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    return Shell.make(tmp_path, request.param)


def test_program_answers_with_exit_code_and_truncated_output(shell: Shell) -> None:
    cases = {
        RunProbe(("sh", "-c", "printf 'a\\000b'; echo c >&2; exit 4")): RunResult(4, b"a\0bc\n"),
        RunProbe(("true",)): RunResult(0),
        RunProbe(("none-such",)): RunResult(127),
        RunProbe(("seq", "100000"), max_bytes=4): RunResult(0, b"1\n2\n"),
        RunProbe(("cat",)): RunResult(0),
        RunProbe(("echo", "it's", "$HOME"), as_root=True): RunResult(0, b"it's $HOME\n"),
        RunProbe(("sh", "-c", f"printf '\\n@{TOKEN} 0 99\\n'")): RunResult(
            0, f"\n@{TOKEN} 0 99\n".encode()
        ),
    }

    found = shell.probe(list(cases), noise=f"echo Welcome; echo '@{TOKEN[::-1]} 1 1'")

    missing = RunProbe(("none-such",))
    assert {probe: answer for probe, answer in found.items() if probe != missing} == {
        probe: answer for probe, answer in cases.items() if probe != missing
    }
    result = found[missing]
    assert isinstance(result, RunResult)
    assert result.code == 127


def test_hanging_program_times_out_without_affecting_other_answers(shell: Shell) -> None:
    hung = RunProbe(("sh", "-c", "echo began; sleep 600"), timeout=timedelta(seconds=1))
    other = RunProbe(("echo", "fine"))

    found = shell.probe([hung, other])

    assert found[other] == RunResult(0, b"fine\n")
    # A busy machine may not reach the echo within a second.
    assert found[hung] in {RunResult(124, b"began\n"), RunResult(124)}


def rewrite_file(folder: Path) -> None:
    """Write a file of the same length, some time later."""
    content = (folder / "bin/run").read_bytes()
    (folder / "bin/run").write_bytes(content[::-1])
    later = (folder / host.SEAL).stat().st_mtime + 1
    os.utime(folder / "bin/run", (later, later))


def retarget_link(folder: Path) -> None:
    """Change the target of a link."""
    (folder / "current").unlink()
    (folder / "current").symlink_to("bin")


def test_file_content_is_read_up_to_the_limit(shell: Shell) -> None:
    (shell.home / "f").write_bytes(b"\0\xff\n@ text")
    (shell.home / "link").symlink_to("f")
    (shell.home / "folder").mkdir()
    path = str(shell.home / "f")
    cases: dict[Probe, bytes | None] = {
        ReadFile(path): b"\0\xff\n@ text",
        ReadFile(path, max_bytes=2): b"\0\xff",
        ReadFile(path, as_root=True): b"\0\xff\n@ text",
        ReadFile(str(shell.home / "link")): b"\0\xff\n@ text",
        ReadFile(str(shell.home / "folder")): None,
        ReadFile(str(shell.home / "none"), as_root=True): None,
    }

    assert shell.probe(list(cases)) == cases


def test_file_without_the_expected_prefix_is_not_read(shell: Shell) -> None:
    (shell.home / "sealed").write_bytes(b"\x01\xfe<sealed>")
    (shell.home / "open").write_bytes(b"canary")
    matching = ReadFile(str(shell.home / "sealed"), prefix=b"\x01\xfe<")
    other = ReadFile(str(shell.home / "open"), prefix=b"\x01\xfe<")

    assert shell.probe([matching, other]) == {matching: b"\x01\xfe<sealed>", other: b""}


def test_stat_has_kind_mode_owner_size_target_and_digest(shell: Shell) -> None:
    file = shell.home / "it's a *"
    file.write_bytes(b"12345")
    file.chmod(0o4751)
    (shell.home / "folder").mkdir()
    (shell.home / "folder").chmod(0o1777)
    (shell.home / "link").symlink_to("a -> b\nc")
    digest = hashlib.sha256(b"12345").hexdigest()
    cases: dict[Probe, FileStat | None] = {
        Stat(str(file)): FileStat(FILE, 0o4751, OWNER, 5),
        Stat(str(file), digest=True): FileStat(FILE, 0o4751, OWNER, 5, digest=digest),
        Stat(str(shell.home / "folder")): FileStat(FOLDER, 0o1777, OWNER),
        Stat(str(shell.home / "link"), digest=True): FileStat(
            LINK, owner=OWNER, target="a -> b\nc"
        ),
        Stat(str(shell.home / "none")): None,
    }

    assert shell.probe(list(cases)) == cases
    device = shell.probe([Stat("/dev/null")])[Stat("/dev/null")]
    assert isinstance(device, FileStat)
    assert device.kind == OTHER


def create_tree(folder: Path) -> None:
    """Create a folder with everything that its digest covers."""
    (folder / "lib/a b").mkdir(parents=True)
    (folder / "bin").mkdir(mode=0o750)
    for name, mode in {"bin/run": 0o755, "lib/a b/two  words": 0o644, "lib/closed": 0o600}.items():
        (folder / name).write_bytes(name.encode() * 3)
        (folder / name).chmod(mode)
    (folder / "bin/python").symlink_to("run")
    (folder / "current").symlink_to("lib")


def digest_of(shell: Shell, folder: Path) -> str:
    found = shell.probe([Stat(str(folder), digest=True)])[Stat(str(folder), digest=True)]
    assert isinstance(found, FileStat)
    return found.digest


def test_sealed_folder_has_the_same_digest_by_shell_and_in_process(shell: Shell) -> None:
    folder = shell.home / "folder"
    create_tree(folder)

    assert shell.execute(Seal(path=str(folder), purpose="p")).code == 0

    result = digest_of(shell, folder)
    assert result == host_commands.folder_digest(folder)
    assert (folder / host.SEAL).read_text() == f"{result}\n"
    assert shell.execute(Seal(path=str(shell.home / "none"), purpose="p")).code == 125


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "bin/run").unlink(),
        lambda folder: (folder / "lib/closed").write_bytes(b"short"),
        lambda folder: (folder / "lib/more").write_bytes(b""),
        lambda folder: (folder / "bin/run").chmod(0o644),
        lambda folder: (folder / "lib/a b/two  words").chmod(0o640),
        lambda folder: (folder / "lib").chmod(0o700),
        lambda folder: (folder / "current").unlink(),
        lambda folder: (folder / "bin/python").rename(folder / "bin/python3"),
        rewrite_file,
        retarget_link,
    ],
)
def test_every_change_of_a_sealed_folder_changes_its_digest(
    damage: Callable[[Path], object], tmp_path: Path
) -> None:
    shell = Shell.make(tmp_path)
    folder = shell.home / "folder"
    create_tree(folder)
    shell.execute(Seal(path=str(folder), purpose="p"))
    before = digest_of(shell, folder)

    damage(folder)

    result = digest_of(shell, folder)
    assert result != before
    assert result == host_commands.folder_digest(folder)


def test_files_are_read_as_the_user_if_sudo_needs_a_password(shell: Shell) -> None:
    shell.install("sudo", "echo 'sudo: a password is required' >&2\nexit 1\n")
    (shell.home / "f").write_bytes(b"x")
    program, file = RunProbe(("true",), as_root=True), ReadFile(str(shell.home / "f"), as_root=True)

    found = shell.probe([program, file, Stat(str(shell.home / "f"))])

    assert found[program] == RunResult(1, b"sudo: a password is required\n")
    assert found[file] == b"x"
    assert isinstance(found[Stat(str(shell.home / "f"))], FileStat)


def test_all_root_probes_share_one_sudo_call(shell: Shell) -> None:
    shell.install(
        "sudo",
        f'echo "$*" | head -1 >>"{shell.home}/calls"\nwhile [ "$1" != -- ] && [ "$1" != true ]; do shift; done\n[ "$1" != -- ] || shift\nexec "$@"\n',
    )

    shell.probe([RunProbe(("echo", str(number)), as_root=True) for number in range(5)])

    assert len((shell.home / "calls").read_text().splitlines()) == 2


def test_probes_that_exceed_one_command_line_are_split(shell: Shell) -> None:
    probes = [ReadFile(f"{shell.home}/{'x' * 200}{number}") for number in range(900)]

    scripts = probe_scripts.render(probes, token=TOKEN)

    assert len(scripts) > 1
    assert [probe for one in scripts for probe in one.probes.values()] == probes
    assert max(len(one.line) for one in scripts) < 128 * 1024


@given(st.binary(max_size=400))
def test_broken_output_gives_no_wrong_answer(output: bytes) -> None:
    probe = ReadFile("/x")
    (script,) = probe_scripts.render([probe], token=TOKEN)

    assert probe_scripts.parse_results(script, token=TOKEN, output=output) == {}


@pytest.mark.parametrize("program", ["openssl", "shasum"])
def test_digest_is_the_same_with_every_program(tmp_path: Path, program: str) -> None:
    for name in {program, "perl", "sh"}:
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    result = subprocess.run(
        ["sh", "-c", f"{script.fragment('digest')}\ndigest"],
        input=b"12345",
        env={"PATH": str(tmp_path)},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert result.stdout.decode() == hashlib.sha256(b"12345").hexdigest()


def test_only_stat_uses_sudo_by_default(shell: Shell) -> None:
    shell.install("sudo", f'touch "{shell.home}/called"\nexit 1\n')
    shell.probe([RunProbe(("true",)), ReadFile("/x")])
    assert not (shell.home / "called").exists()

    shell.probe([Stat("/x")])
    assert (shell.home / "called").exists()
