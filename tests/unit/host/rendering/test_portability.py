"""Scripts use only programs and options that macOS and Linux share, listed here from both manuals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import bramley.host.rendering as package

PARTS = sorted((Path(package.__file__).parent / "shell").glob("*.sh"))
ALLOWED: dict[str, set[str]] = {
    "awk": {"-v"},
    "base64": {"--decode"},
    "cat": set(),
    "chmod": set(),
    "chown": set(),
    "date": set(),
    # The -c belongs to wc in -exec.
    "find": {"-type", "-name", "-exec", "-perm", "-newer", "-c"},
    # Not with 0, which macOS refuses.
    "head": {"-c"},
    "ln": {"-s", "--"},
    "ls": {"-ld"},
    "mkdir": {"-p"},
    # Neither -T nor -h nor -n: each exists on one of the two systems only.
    "mv": {"-f"},
    "openssl": {"-sha256"},
    "ps": {"-A", "-o", "-p", "-ww"},
    "readlink": set(),
    "rm": {"-rf"},
    "shasum": {"-a"},
    "sleep": set(),
    "sort": set(),
    "sudo": {"-n", "--"},
    "sync": set(),
    "tr": {"-d"},
    "wc": {"-c"},
    "/bin/sh": {"-c"},
}
SHELL = {
    "[", "cd", "command", "echo", "eval", "exec", "exit", "export", "jobs", "kill", "printf", "read", "return", "set", "shift", "trap", "true", "umask", "wait", ":",
}  # fmt: skip
# Operands and expansions that the simple splitting below leaves; none of them is the name of a program.
NOT_PROGRAMS = {
    "$@",
    "$root_probes",
    "=",
    "-eq",
    "-lt",
    "*",
    "*}",
    "$2",
    "$3",
    "$printed",
    "in",
    "other",
    "member",
    "$stop",
    "*$2*",
    "$mark*$text*",
}
RENDERED = {"prepare", "start"}
KEYWORDS = {
    "if",
    "then",
    "else",
    "elif",
    "fi",
    "while",
    "do",
    "done",
    "{",
    "}",
    "!",
    "case",
    "esac",
    "for",
}
ASSIGNMENT = re.compile(r"[A-Za-z_]+=\S*")
REDIRECTION = re.compile(r"\d?[<>]+&?\S*")


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of every simple command; sufficient for scripts as simple as ours."""
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    text = re.sub(r"'[^']*'", "QUOTED", text).replace('"', "")
    text = re.sub(
        r"\$\(\(([^()]|\([^)]*\))*\)\)",
        "NUMBER",
        text.replace("$(($(wc -c <$new/$name)))", "$(wc -c)"),
    )
    text = re.sub(r"\d?[<>]&?(\$?[\w/]+|-)", " ", text)
    for piece in re.split(r"\n|\|\||&&|[|;&()]|\$\(", text):
        words = [word for word in piece.split() if not REDIRECTION.fullmatch(word)]
        while words and (words[0] in KEYWORDS or ASSIGNMENT.fullmatch(words[0])):
            words.pop(0)
        if words:
            yield words


def functions(texts: list[str]) -> set[str]:
    return {name for text in texts for name in re.findall(r"^(\w+)\(\) [{(]", text, re.MULTILINE)}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.stem)
def test_scripts_call_only_programs_of_both_systems(part: Path) -> None:
    defined = functions([each.read_text() for each in PARTS]) | RENDERED
    called = {words[0] for words in commands(part.read_text())}
    assert called - defined - SHELL - set(ALLOWED) - NOT_PROGRAMS == set()


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.stem)
def test_scripts_use_only_options_of_both_systems(part: Path) -> None:
    for words in commands(part.read_text()):
        if words[0] in ALLOWED:
            options = {word for word in words[1:] if re.match(r"-{1,2}[a-zA-Z]|--$", word)}
            # After -- and for sh the words belong to another program.
            options -= {"-c"} if words[0] == "sudo" else set()
            assert options <= ALLOWED[words[0]], words


def test_every_allowed_program_is_used() -> None:
    used = {word for part in PARTS for words in commands(part.read_text()) for word in words}
    assert set(ALLOWED) - used == set()


def test_scripts_do_not_trap_signals_that_they_send_to_children() -> None:
    """A shell that forks while a signal is trapped may lose the signal in the child, and would wait for that child forever."""
    traps = {
        tuple(words) for part in PARTS for words in commands(part.read_text()) if words[0] == "trap"
    }
    assert {words[2:] for words in traps} == {("TERM",), ("PIPE",)}
    ignoring = [part.stem for part in PARTS if "trap '' TERM" in part.read_text()]
    assert ignoring == ["process_timeout", "read_input"]
