"""The last words of the agent on its Mac, for errors: few, bounded, and with nothing in them that opens a door.

They are asked for only where the agent does not do well, since they cost another round trip. The agent writes no secrets; what
looks like one is hidden all the same, because programs that it calls may have said it.
"""

from __future__ import annotations

import re

from bramley.api.names import host
from bramley.base.secret import HIDDEN
from bramley.host.commands import Look
from bramley.host.facts import Facts, Said

_MOST = 4096
LAST = Look(("tail", "-c", str(_MOST), host.AGENT_LOG))
_LINES = 3
_LONGEST_LINE = 400
_SECRETS = re.compile(
    r"eyJ[\w-]+\.[\w.-]+|tskey-[\w-]+|(?<=://)[^\s/@]*:[^\s/@]*(?=@)|(?<=Bearer )\S+", re.ASCII
)


def told(seen: Facts) -> str:
    """Return where the log is and, if it was asked for, how it ends."""
    said = seen.answers.get(LAST)
    lines = _last(said) if isinstance(said, Said) and said.code == 0 else []
    if not lines:
        return f"{host.AGENT_LOG} on the Mac may say why"
    return f"{host.AGENT_LOG} on the Mac ends with: {' | '.join(lines)}"


def _last(said: Said) -> list[str]:
    text = said.output.decode("utf-8", "replace")
    if len(said.output) >= _MOST:
        # What begins in the middle of a line may be the rest of a secret, which nobody would know for one.
        text = text.partition("\n")[2]
    lines = [_printable(line) for line in _SECRETS.sub(HIDDEN, text).splitlines() if line.strip()]
    return [_bounded(line) for line in lines[-_LINES:]]


def _printable(line: str) -> str:
    return " ".join("".join(one if one.isprintable() else " " for one in line).split())


def _bounded(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"
