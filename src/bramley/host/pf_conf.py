"""`/etc/pf.conf` with exactly one block of ours, whatever earlier releases and people left in it.

Works on bytes: lines of others stay as they are, in whatever encoding. An anchor that is loaded twice makes pf refuse the
whole file, Apple's translation rules included, so the unmarked stanzas of older releases go as well as marked blocks.
Reading, checking with pfctl and replacing the file are not done here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bramley.api.names import host

BEGIN = host.PF_BEGIN.encode()
END = host.PF_END.encode()
BLOCK = f"""\
{host.PF_BEGIN}
anchor "{host.PF_ANCHOR}"
load anchor "{host.PF_ANCHOR}" from "{host.PF_ANCHOR_FILE}"
{host.PF_END}
""".encode()

_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_NAME = host.PF_ANCHOR.encode()
_LEGACY_COMMENT = host.PF_LEGACY_COMMENT.encode()
# Our anchor with whatever follows it, but an opening brace: the rules behind that would be left without their head.
_OUR_ANCHOR = re.compile(
    rb'\s*(?:load\s+)?anchor\s+(?:"%(name)s"|%(name)s(?=[\s#]|$))[^{]*'
    % {b"name": re.escape(_NAME)}
)
_ANCHOR = re.compile(rb"\s*(?:load\s+|[a-z]+-)?anchor\s")


def with_block(text: bytes) -> bytes:
    """Return the file with one block of ours at its end, where pf wants filter rules to be."""
    kept = without_block(text)
    parted = kept if kept.endswith(b"\n") or not kept else kept + b"\n"
    return parted + BLOCK


def without_block(text: bytes) -> bytes:
    """Return the file without any marked block, loose marker or unmarked line of ours."""
    lines = _LINE.findall(text)
    blocks = _in_blocks(lines)
    return b"".join(
        line for at, line in enumerate(lines) if at not in blocks and not _is_ours(line)
    )


def _in_blocks(lines: Sequence[bytes]) -> set[int]:
    """Return which lines lie between a begin and its end.

    A begin without an end is no block: it would reach into what others wrote behind it. So a second begin, or an anchor of
    somebody else, shows that the end of the first one was lost.
    """
    found: set[int] = set()
    begun: int | None = None
    for at, line in enumerate(lines):
        marker = line.strip()
        if marker == BEGIN:
            begun = at
        elif marker == END and begun is not None:
            found.update(range(begun, at))
            begun = None
        elif _ANCHOR.match(line) and _NAME not in line:
            begun = None
    return found


def _is_ours(line: bytes) -> bool:
    told = line.strip()
    return (
        told in {BEGIN, END}
        or told.startswith(_LEGACY_COMMENT)
        or _OUR_ANCHOR.fullmatch(line) is not None
    )
