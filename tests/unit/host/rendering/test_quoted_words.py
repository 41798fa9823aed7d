"""Quoting: a real shell passes any text unchanged to the program, without side effects."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret, SecretBytes
from bramley.host.commands import Folder, Link, Remove, Rename, Run, Write
from bramley.host.rendering import command_scripts, script
from tests.unit import example_counts
from tests.unit.host.rendering.shells import OWNER, TOKEN, Shell, tree

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
NASTY = "a'b\"c$(touch hit)`touch hit`;touch hit\n&|>hit *?[x] ~ \\ #!-=%"
# Each example starts several real shells.
few_examples = settings(max_examples=example_counts.examples(8))
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=30
).filter(lambda name: name not in {".", ".."})


@few_examples
@given(st.lists(TEXT, min_size=1, max_size=30))
@example([NASTY, "", "-n", "~root", "=ls", "é"])
@example([chr(code) for code in range(1, 128)])
@example(["a;b", "$HOME", "(x)", "a&b", "~", "a*"])
def test_words_arrive_unchanged(words: list[str]) -> None:
    line = script.command_line("printf", r"%s\0", *words)
    output = subprocess.run(["sh", "-c", line], capture_output=True, check=True, timeout=60).stdout
    assert output == b"".join(word.encode() + b"\0" for word in words)


@few_examples
@given(st.lists(TEXT, max_size=5), st.binary(max_size=200))
@example([NASTY, "--", "-c"], b"\0'\n$(touch hit)")
def test_arguments_and_stdin_arrive_unchanged(words: list[str], stdin: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell.make(Path(folder))
        recorded = Path(folder) / "recorded"
        script = 'out=$1; shift; { printf "%s\\0" "$@"; cat; } >"$out"'
        run = Run(
            argv=("sh", "-c", script, "sh", str(recorded), *words),
            purpose="record",
            stdin=SecretBytes(stdin),
        )
        assert shell.execute(run).code == 0
        expected = b"".join(word.encode() + b"\0" for word in words or [""]) + stdin
        assert recorded.read_bytes() == expected
        assert set(tree(Path(folder))) == {"recorded", "programs", "programs/sudo", "programs/sync"}


@few_examples
@given(NAMES, NAMES, st.binary(max_size=300), TEXT.filter(bool))
@example("a'b$(touch hit)", "-rf", b"\0\xff\n", "-s")
def test_any_names_and_contents_change_only_their_own_paths(
    one: str, other: str, content: bytes, target: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell.make(Path(folder))
        mac = Path(folder) / "mac"
        mac.mkdir()
        before = tree(Path(folder))
        path = f"{mac}/{one}.d"
        changes: list[command_scripts.Rendered] = [
            Folder(path=path, purpose="p", owner=OWNER),
            Write(path=f"{path}/{one}", content=content, purpose="p", owner=OWNER),
            Rename(path=f"{path}/{one}", to=f"{path}/{other}.x", purpose="p"),
            Link(path=f"{path}/{other}.l", target=target, purpose="p"),
        ]
        assert [shell.execute(change).code for change in changes] == [0] * 4
        created = {
            f"mac/{one}.d": "folder",
            f"mac/{one}.d/{other}.x": content,
            f"mac/{one}.d/{other}.l": f"-> {target}",
        }
        assert tree(Path(folder)) == before | created
        assert shell.execute(Remove(path=path, purpose="p")).code == 0
        assert tree(Path(folder)) == before


def test_secrets_are_not_in_command_lines_or_reprs() -> None:
    secret = Secret("canary's value")
    commands: list[command_scripts.Rendered] = [
        Run(argv=("x",), purpose="p", as_root=True, sudo_password=secret, stdin=secret),
        Run(argv=("x",), purpose="p", prompt="Password:", stdin=secret),
        Write(path="/etc/x", content=secret, purpose="p", sudo_password=secret),
    ]
    for command in commands:
        script = command_scripts.render(command, token=TOKEN)
        assert "canary" not in script.line + repr(script)


@pytest.mark.parametrize("path", ["etc/x", "-rf", "/", "/etc/", "//etc", "/etc/../x", "/./x", ""])
def test_invalid_path_is_refused(path: str) -> None:
    with pytest.raises(BadConfiguration, match="path on a Mac"):
        command_scripts.render(Folder(path=path, purpose="p"), token=TOKEN)


@pytest.mark.parametrize("path", ["/usr", "/Users"])
def test_top_level_folder_is_never_removed(path: str) -> None:
    with pytest.raises(BadConfiguration, match="must not be removed"):
        command_scripts.render(Remove(path=path, purpose="p"), token=TOKEN)


@pytest.mark.parametrize("argv", [(), ("",), ("-c", "x"), ("x", "a\0b")])
def test_invalid_argv_is_refused(argv: tuple[str, ...]) -> None:
    with pytest.raises(BadConfiguration):
        command_scripts.render(Run(argv=argv, purpose="p"), token=TOKEN)
