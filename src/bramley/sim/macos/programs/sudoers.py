"""The grammar of sudoers, as far as visudo checks it, and the rules for one user.

Whether a call is allowed is decided in `sudo`. Errors have line and column, as with sudo 1.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from bramley.sim.macos import users
from bramley.sim.macos.call import Call, Result, not_modelled

if TYPE_CHECKING:
    from bramley.sim.macos.files import Files
    from bramley.sim.macos.mac import Mac


MAIN = "/etc/sudoers"
_INCLUDE = re.compile(r"[@#]includedir\s+(\S+)\s*")
_GRANT_OF_ALL = re.compile(
    r"(\S+)\s+ALL\s*=\s*(?:\([^)]*\)\s*)?(?:(NOPASSWD|PASSWD)\s*:\s*)?ALL\s*"
)
_NAME = r'(?:!\s*)*(?:"[^"\n]+"|[%+#:]*[A-Za-z0-9_.\\/*?@-]+)'
_NAMES = rf"{_NAME}(?:\s*,\s*{_NAME})*"
_TAG = (
    r"(?:NOPASSWD|PASSWD|NOEXEC|EXEC|SETENV|NOSETENV|LOG_INPUT|NOLOG_INPUT|LOG_OUTPUT|NOLOG_OUTPUT|"
    r"MAIL|NOMAIL|FOLLOW|NOFOLLOW|INTERCEPT|NOINTERCEPT)\s*:"
)
_COMMAND = (
    r"(?:!\s*)*(?:ALL|list|sudoedit(?:[ \t]+[^,:=\n]+)?|[A-Z][A-Z0-9_]*|/(?:\\.|[^,:=\\\n])+)"
)
_RUNAS = rf"\(\s*(?:{_NAMES})?\s*(?::\s*(?:{_NAMES})\s*)?\)"
_GRANT = rf"(?:{_RUNAS}\s*)?(?:{_TAG}\s*)*{_COMMAND}"
_GRANTS = rf"{_GRANT}(?:\s*,\s*{_GRANT})*"
_FORMS = {
    "include": re.compile(r"[@#]include(?:dir)?\s+\S.*"),
    "comment": re.compile(r"#(?![0-9]).*"),
    "defaults": re.compile(r"Defaults(?:[@:!>]\s*\S+)?\s+\S.*"),
    "alias": re.compile(r"(?:User|Runas|Host|Cmnd|Cmd)_Alias\s+[A-Z][A-Z0-9_]*\s*=\s*\S.*"),
    "grant": re.compile(
        rf"{_NAMES}\s+{_NAMES}\s*=\s*{_GRANTS}(?:\s*:\s*{_NAMES}\s*=\s*{_GRANTS})*"
    ),
}


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for one user, and the errors of the files."""

    may: bool
    without_password: bool
    errors: str


def rules_for(mac: Mac, user: str) -> Rules:
    """Return the rules for a user."""
    state, files = mac.state, mac.files
    names = {user, "ALL", *(f"%{group}" for group in users.groups_of(state, user))}
    may = without = False
    errors: list[str] = []
    for path in _paths(files):
        if error := _file_error(files, state, path):
            errors.append(error)
            continue
        text = files.text(path)
        for tag in (tag for name, tag in _grants(text) if name in names):
            may, without = True, tag == "NOPASSWD"
        errors += [f"{path}:{wrong.line}: syntax error" for wrong in invalid_lines(text)]
    return Rules(may, without, "".join(f"{line}\n" for line in errors))


def _paths(files: Files) -> Iterator[str]:
    yield MAIN
    for line in files.text(MAIN).splitlines():
        if found := _INCLUDE.fullmatch(line):
            for name in files.names(found[1]):
                # Editors and package managers leave such files, so sudo does not read them.
                if "." not in name and not name.endswith("~"):
                    yield f"{found[1]}/{name}"


def _file_error(files: Files, state: Mapping[str, Any], path: str) -> str:
    owner = files.owner(path).partition(":")[0]
    if owner != "root":
        uid = users.uid_of(state, owner)
        return f"sudo: {path} is owned by uid {owner if uid is None else uid}, should be 0"
    if files.mode(path) & 0o002:
        return f"sudo: {path} is world writable"
    return ""


# Called with each sudo, mostly for the same texts.
@cache
def _grants(text: str) -> list[tuple[str, str]]:
    found = (_GRANT_OF_ALL.fullmatch(line.strip()) for line in text.splitlines())
    return [(each[1], each[2] or "PASSWD") for each in found if each]


@dataclass(frozen=True, slots=True)
class InvalidLine:
    """A line with a syntax error."""

    line: int
    text: str


@cache
def invalid_lines(text: str) -> list[InvalidLine]:
    """Return each line with a syntax error."""
    return [
        InvalidLine(number, line)
        for number, line in _lines(text)
        if (bare := _without_comment(line).strip())
        and not any(form.fullmatch(bare) for form in _FORMS.values())
    ]


def visudo(mac: Mac, call: Call) -> Result:
    """Check a file; editing needs an editor and is not modelled."""
    words = [word for word in call.argv[1:] if word not in {"-q", "--quiet"}]
    is_quiet = len(words) < len(call.argv) - 1
    path = _checked_file(words)
    if path is None:
        return not_modelled(call)
    contents = mac.files.read(path)
    if contents is None:
        return Result(1, err=f"visudo: unable to open {path}: No such file or directory\n")
    wrong = invalid_lines(contents.decode("utf-8", "replace"))
    if wrong:
        return Result(1, err="" if is_quiet else "".join(_describe(path, each) for each in wrong))
    return Result(out="" if is_quiet else f"{path}: parsed OK\n")


def _checked_file(words: list[str]) -> str | None:
    match words:
        case ["-c"]:
            return "/etc/sudoers"
        case ["-cf", path] | ["-c", "-f", path] | ["-f", path, "-c"]:
            return path
        case [word] if word.startswith("-cf"):
            return word[3:]
    return None


def _describe(path: str, wrong: InvalidLine) -> str:
    column = len(wrong.text.split(None, 1)[0]) + 1
    mark = " " * (column - 1) + "^"
    return f"{path}:{wrong.line}:{column}: syntax error\n{wrong.text}\n{mark}\n"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with the number of their first one; a backslash at the end joins two."""
    whole, begun = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        begun = begun or number
        if line.endswith("\\"):
            whole += line[:-1]
            continue
        yield begun, whole + line
        whole, begun = "", 0


def _without_comment(line: str) -> str:
    """Return a line without the comment at its end; `#` before a digit is a uid, and `#include` is not a comment."""
    if re.match(r"\s*#", line):
        return line
    return re.sub(r'((?:"[^"]*"|\\.|[^"\\#])*)#(?![0-9]).*', r"\1", line)
