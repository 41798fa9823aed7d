"""The grammar of sudoers, as far as visudo checks it: defaults, aliases, includes and who may run what.

Who may in the end is sudo's own matter. Mistakes are told by line and column, as sudo 1.9 does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bramley.sim.macos.call import Call, Said
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import refusing

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
class Mistake:
    """A line that sudo does not understand."""

    line: int
    text: str


def mistakes(text: str) -> Iterator[Mistake]:
    """Yield each line that fits no form."""
    for number, line in _lines(text):
        bare = _uncommented(line).strip()
        if bare and not any(form.fullmatch(bare) for form in _FORMS.values()):
            yield Mistake(number, line)


def visudo(mac: Mac, call: Call) -> Said:
    """Check a file; editing needs an editor and is not modelled."""
    words = [word for word in call.argv[1:] if word not in {"-q", "--quiet"}]
    is_quiet = len(words) < len(call.argv) - 1
    path = _checked_file(words)
    if path is None:
        return refusing.not_modelled(call)
    contents = mac.files.read(path)
    if contents is None:
        return Said(1, err=f"visudo: unable to open {path}: No such file or directory\n")
    wrong = list(mistakes(contents.decode("utf-8", "replace")))
    if wrong:
        return Said(1, err="" if is_quiet else "".join(_told(path, one) for one in wrong))
    return Said(out="" if is_quiet else f"{path}: parsed OK\n")


def _checked_file(words: list[str]) -> str | None:
    match words:
        case ["-c"]:
            return "/etc/sudoers"
        case ["-cf", path] | ["-c", "-f", path] | ["-f", path, "-c"]:
            return path
        case [word] if word.startswith("-cf"):
            return word[3:]
    return None


def _told(path: str, mistake: Mistake) -> str:
    column = len(mistake.text.split(None, 1)[0]) + 1
    mark = " " * (column - 1) + "^"
    return f"{path}:{mistake.line}:{column}: syntax error\n{mistake.text}\n{mark}\n"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines, those that end in a backslash together with the next, by the number of their first one."""
    whole, begun = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        begun = begun or number
        if line.endswith("\\"):
            whole += line[:-1]
            continue
        yield begun, whole + line
        whole, begun = "", 0


def _uncommented(line: str) -> str:
    """Return a line without the comment at its end; `#` before a digit is a user's number, and `#include` is none."""
    if re.match(r"\s*#", line):
        return line
    return re.sub(r'((?:"[^"]*"|\\.|[^"\\#])*)#(?![0-9]).*', r"\1", line)
