"""Scripts keep to programs and options that macOS and Linux share, as this list has them from both manuals."""

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
    # The -c is that of wc, which it starts.
    "find": {"-type", "-name", "-exec", "-perm", "-newer", "-c"},
    # Not with 0, which macOS refuses.
    "head": {"-c"},
    "ln": {"-s", "--"},
    "ls": {"-ld"},
    "mkdir": {"-p"},
    # Neither -T nor -h nor -n: each is known to one of the two.
    "mv": {"-f"},
    "openssl": {"-sha256"},
    "ps": {"-A", "-o"},
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
    "[", "cd", "command", "echo", "eval", "exec", "exit", "export", "kill", "printf", "read", "return", "set", "shift", "trap", "true", "umask", "wait", ":",
}  # fmt: skip
# What the plain splitting below leaves of operands and of expansions; none of it could be a program's name.
REST = {"$@", "$asked", "=", "-eq", "*}"}
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
}
ASSIGNMENT = re.compile(r"[A-Za-z_]+=\S*")
REDIRECTION = re.compile(r"\d?[<>]+&?\S*")


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of every simple command; good for scripts that are written as plainly as ours."""
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
    return {name for text in texts for name in re.findall(r"^(\w+)\(\) \{", text, re.MULTILINE)}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.stem)
def test_a_script_calls_only_programs_that_both_systems_have(part: Path) -> None:
    own = functions([each.read_text() for each in PARTS]) | RENDERED
    called = {words[0] for words in commands(part.read_text())}
    assert called - own - SHELL - set(ALLOWED) - REST == set()


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.stem)
def test_a_script_uses_only_options_that_both_systems_know(part: Path) -> None:
    for words in commands(part.read_text()):
        if words[0] in ALLOWED:
            options = {word for word in words[1:] if re.match(r"-{1,2}[a-zA-Z]|--$", word)}
            # Behind -- and for sh the words are another program's.
            options -= {"-c"} if words[0] == "sudo" else set()
            assert options <= ALLOWED[words[0]], words


def test_the_list_is_not_longer_than_needed() -> None:
    used = {word for part in PARTS for words in commands(part.read_text()) for word in words}
    assert set(ALLOWED) - used == set()


def test_no_script_traps_a_signal_that_it_sends_to_its_own_children() -> None:
    """A shell that forks while a signal is trapped may lose it in the child, and then waits for that child for ever."""
    traps = {
        tuple(words) for part in PARTS for words in commands(part.read_text()) if words[0] == "trap"
    }
    assert {words[2:] for words in traps} == {("EXIT",), ("TERM",), ("PIPE",)}
    ignoring = [part.stem for part in PARTS if "trap '' TERM" in part.read_text()]
    assert ignoring == ["attend", "watch"]
