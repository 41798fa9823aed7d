"""shellcheck reports nothing for the scripts that are sent to a Mac."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

import pytest

import bramley.host.rendering as package
from bramley.base.secret import Secret
from bramley.host.artifacts import Artifact
from bramley.host.commands import (
    Folder,
    Link,
    Probe,
    ReadFile,
    Remove,
    Rename,
    Run,
    RunProbe,
    Seal,
    Stat,
    Stream,
    Write,
)
from bramley.host.rendering import command_scripts, probe_scripts
from bramley.host.rendering.script import compose, fragment
from tests.programs import run_program

TOKEN = "0123456789abcdef"
PARTS = sorted((Path(package.__file__).parent / "shell").glob("*.sh"))
NASTY = 'it\'s $(a) `b` \\ "c" *'
FILE = Artifact(
    name="a", version="1", path=Path("/x"), size=1, sha256=hashlib.sha256(b"").hexdigest()
)
COMMANDS: dict[str, command_scripts.Rendered] = {
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
# A false positive: the recommended form of a quote within quotes.
QUOTED_QUOTE = "SC1003"
# Functions that another part calls, and variables that it uses.
OF_OTHER_PARTS = "SC2034,SC2154,SC2317,SC2329"


def findings(text: str, *, without: str = "") -> str:
    checked = run_program(["shellcheck", "-s", "sh", "-e", without or "SC0000", "-"], input=text)  # fmt: skip
    return checked.stdout + checked.stderr


def scripts(line: str) -> list[str]:
    """Return the scripts in a command line: the words after `-c`."""
    words = shlex.split(line)
    return [words[at + 1] for at, word in enumerate(words) if word == "-c"][:1]


def test_parts_are_clean() -> None:
    checked = run_program(["shellcheck", *PARTS])
    assert checked.stdout + checked.stderr == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_rendered_command_is_clean(name: str) -> None:
    line = command_scripts.render(COMMANDS[name], token=TOKEN).line
    assert findings(line, without=QUOTED_QUOTE) == ""
    for script in scripts(line):
        assert findings(script, without="SC2086") == ""


def test_rendered_probes_are_clean() -> None:
    probes: list[Probe] = [
        RunProbe(("x", NASTY)),
        RunProbe(("x", NASTY), as_root=True),
        ReadFile("/x", prefix=b"y"),
        Stat(f"/x/{NASTY}"),
    ]
    (probing,) = probe_scripts.render(probes, token=TOKEN)
    assert findings(probing.line, without=QUOTED_QUOTE) == ""
    (script,) = scripts(probing.line)
    # It contains scripts as texts.
    assert findings(script, without=f"{OF_OTHER_PARTS},{QUOTED_QUOTE},SC2016") == ""
    inner = compose(
        f"token={TOKEN}\n", fragment("process_timeout"), fragment("digest"), fragment("probe")
    )
    assert findings(inner, without=f"{OF_OTHER_PARTS},SC2086,SC2046") == ""
