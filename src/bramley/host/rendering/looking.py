"""Questions as one script for all of them, and its output as answers.

An answer is base64 and then a line with the token, the question's number and a code, so no byte of a file and no noise of a
login shell can be taken for another answer. What only root may see is asked in one root shell; where sudo would ask for a
password, files are asked for as the user, and programs answer what sudo says.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bramley.host.commands import Find, Look, LookAt, Probe
from bramley.host.facts import FILE, FOLDER, LINK, OTHER, Answer, Found, Said
from bramley.host.rendering import quoting
from bramley.host.rendering.script import SEAL, as_user, compose, part

# Well below what a kernel takes as one argument.
_LONGEST_LINE = 96 * 1024
_KINDS = {"-": FILE, "d": FOLDER, "l": LINK}


class Question(NamedTuple):
    """One command line that asks several probes, by their number."""

    line: str
    probes: Mapping[int, Probe]


def render(probes: Sequence[Probe], *, token: str) -> list[Question]:
    """Return the probes as questions: one, unless there are too many for a single command line."""
    return list(_split(dict(enumerate(probes)), token))


def _split(probes: Mapping[int, Probe], token: str) -> Iterator[Question]:
    line = as_user(_script(probes, token))
    if len(line) <= _LONGEST_LINE or len(probes) == 1:
        yield Question(line, probes)
        return
    numbers = list(probes)
    half = len(numbers) // 2
    for some in (numbers[:half], numbers[half:]):
        yield from _split({number: probes[number] for number in some}, token)


def _script(probes: Mapping[int, Probe], token: str) -> str:
    functions = compose(
        f"token={token}\n", SEAL, part("watch"), part("digest"), part("listing"), part("look")
    )
    plain = "".join(_ask(number, one) for number, one in probes.items() if not _is_of_root(one))
    privileged = "".join(_ask(number, one) for number, one in probes.items() if _is_of_root(one))
    return (
        f"functions={quoting.quote(functions)}\nasked={quoting.quote(privileged)}\n"
        f'eval "$functions"\ntell begin 0\n{plain}{part("privileged") if privileged else ""}'
    )


def _is_of_root(probe: Probe) -> bool:
    return isinstance(probe, Find) or probe.as_root


def _ask(number: int, probe: Probe) -> str:
    words: tuple[object, ...]
    match probe:
        case Look():
            within = max(1, round(probe.within.total_seconds()))
            name = "said_to_root" if probe.as_root else "said"
            words = (name, number, probe.most, within, *quoting.program(probe.argv))
        case LookAt():
            only = base64.b64encode(probe.only).decode()
            path = quoting.path(probe.path)
            words = ("held", number, probe.most, path, len(probe.only), only)
        case Find():
            words = ("found", number, quoting.path(probe.path), "yes" if probe.digest else "no")
    return quoting.line(*(str(word) for word in words)) + "\n"


def answers(question: Question, *, token: str, output: bytes) -> dict[Probe, Answer]:
    """Return the answers that an output holds; those that are missing in it are missing here."""
    found: dict[Probe, Answer] = {}
    for number, code, content in _frames(token, output):
        probe = question.probes.get(number)
        if probe is not None:
            found[probe] = _answer(probe, code, content)
    return found


def _frames(token: str, output: bytes) -> Iterator[tuple[int, int, bytes]]:
    heads = re.compile(rb"^@" + token.encode() + rb" (begin|\d+) (\d+)\r?$", re.MULTILINE)
    start = 0
    for head in heads.finditer(output):
        if head[1] != b"begin":
            content = base64.b64decode(output[start : head.start()])
            yield int(head[1]), int(head[2]), content
        start = head.end()


def _answer(probe: Probe, code: int, content: bytes) -> Answer:
    match probe:
        case Look():
            return Said(code, content)
        case LookAt():
            return content if code == 0 else None
        case Find():
            return _found(content) if code == 0 else None


def _found(content: bytes) -> Found | None:
    described, _, target = content.partition(b"\n")
    words = described.decode("utf-8", "replace").split(" ")
    if len(words) != 4:
        # It went away between two questions.
        return None
    mode, owner, size, digest = words
    kind = _KINDS.get(mode[0], OTHER)
    return Found(
        kind,
        mode=0 if kind == LINK else _mode(mode),
        owner=owner,
        size=int(size) if kind == FILE else 0,
        target=target.decode("utf-8", "surrogateescape").removesuffix("\n"),
        digest="" if digest == "-" else digest,
    )


def _mode(shown: str) -> int:
    """Return the number for what `ls` shows, such as -rwsr-x--t."""
    bits = 0
    for position, letter in enumerate(shown[1:10]):
        if letter not in "-ST":
            bits |= 0o400 >> position
        if letter in "sStT":
            bits |= 0o4000 >> (position // 3)
    return bits
