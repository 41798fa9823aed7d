"""Everything that is sent to a Mac is shell that shellcheck has nothing to say about."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
from pathlib import Path

import pytest

import bramley.host.rendering as package
from bramley.base.secret import Secret
from bramley.host.artifacts import Artifact
from bramley.host.commands import (
    Find,
    Folder,
    Link,
    Look,
    LookAt,
    Probe,
    Remove,
    Rename,
    Run,
    Seal,
    Stream,
    Write,
)
from bramley.host.rendering import doing, looking
from bramley.host.rendering.script import compose, part

TOKEN = "0123456789abcdef"
PARTS = sorted((Path(package.__file__).parent / "shell").glob("*.sh"))
NASTY = 'it\'s $(a) `b` \\ "c" *'
FILE = Artifact(
    name="a", version="1", path=Path("/x"), size=1, sha256=hashlib.sha256(b"").hexdigest()
)
COMMANDS: dict[str, doing.Rendered] = {
    "run": Run(argv=("x", NASTY), purpose="p", stdin=b"x"),
    "run as root": Run(argv=("x",), purpose="p", as_root=True, sudo_password=Secret("x")),
    "run at a prompt": Run(argv=("x", NASTY), purpose="p", prompt="Password:"),
    "write": Write(path=f"/etc/{NASTY}", content=b"x", purpose="p", check=("visudo", "-cf", "{}")),
    "stream": Stream(artifact=FILE, path="/opt/x", purpose="p"),
    "folder": Folder(path="/opt/x", purpose="p"),
    "link": Link(path="/opt/x", target=NASTY, purpose="p"),
    "rename": Rename(path="/opt/x", to="/opt/y", purpose="p"),
    "seal": Seal(path="/opt/x", purpose="p"),
    "remove": Remove(path="/opt/x", purpose="p"),
}  # fmt: skip
# Functions that another part calls, and variables that it uses.
# The way to write a quote within quotes is the one that is advised; it is seen as a mistake where quotes meet.
STYLE = "SC1003"
OF_OTHER_PARTS = "SC2034,SC2154,SC2317,SC2329"


def findings(text: str, *, without: str = "") -> str:
    checked = subprocess.run(
        ["shellcheck", "-s", "sh", "-e", without or "SC0000", "-"],
        input=text, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    return checked.stdout + checked.stderr


def scripts(line: str) -> list[str]:
    """Return the scripts within a command line: what stands behind `-c`."""
    words = shlex.split(line)
    return [words[at + 1] for at, word in enumerate(words) if word == "-c"][:1]


def test_the_parts_are_clean_by_themselves() -> None:
    told = subprocess.run(
        ["shellcheck", *PARTS], capture_output=True, text=True, timeout=180, check=False
    )
    assert told.stdout + told.stderr == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_rendered_command_is_clean(name: str) -> None:
    line = doing.render(COMMANDS[name], token=TOKEN).line
    assert findings(line, without=STYLE) == ""
    for script in scripts(line):
        assert findings(script, without="SC2086") == ""


def test_rendered_questions_are_clean() -> None:
    probes: list[Probe] = [
        Look(("x", NASTY)),
        Look(("x", NASTY), as_root=True),
        LookAt("/x", only=b"y"),
        Find(f"/x/{NASTY}"),
    ]
    (question,) = looking.render(probes, token=TOKEN)
    assert findings(question.line, without=STYLE) == ""
    (script,) = scripts(question.line)
    # It holds scripts as texts.
    assert findings(script, without=f"{OF_OTHER_PARTS},{STYLE},SC2016") == ""
    inner = compose(f"token={TOKEN}\n", part("watch"), part("digest"), part("look"))
    assert findings(inner, without=f"{OF_OTHER_PARTS},SC2086,SC2046") == ""
