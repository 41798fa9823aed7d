"""Probes as one script for all of them, and the parser of its output.

A result is base64 followed by a line with the token, the probe's number and a code, so neither bytes of a file nor output of a login
shell can be mistaken for another result. Probes that need root run in one root shell; if sudo would ask for a password, files are
read as the user, and programs return the error of sudo.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bramley.host.commands import Probe, ReadFile, RunProbe, Stat
from bramley.host.facts import FILE, FOLDER, LINK, OTHER, FileStat, ProbeResult, RunResult
from bramley.host.rendering.script import (
    SEAL,
    as_user,
    checked_path,
    checked_program,
    command_line,
    compose,
    fragment,
    quote,
)

# Well below the longest argument that a kernel accepts.
MAX_LINE = 96 * 1024
_FRAGMENTS = ("process_timeout", "digest", "probe")
_KINDS = {"-": FILE, "d": FOLDER, "l": LINK}


class ProbeScript(NamedTuple):
    """One script for several probes, by number; `text` is for a shell of the login user."""

    text: str
    probes: Mapping[int, Probe]

    @property
    def line(self) -> str:
        """Return the script as a command line."""
        return as_user(self.text)


def render(probes: Sequence[Probe], *, token: str) -> list[ProbeScript]:
    """Return the probes as scripts: one, unless there are too many for a single command line."""
    return list(_split(dict(enumerate(probes)), token))


def _split(probes: Mapping[int, Probe], token: str) -> Iterator[ProbeScript]:
    script = ProbeScript(_text(probes, token), probes)
    if len(script.line) <= MAX_LINE or len(probes) == 1:
        yield script
        return
    numbers = list(probes)
    half = len(numbers) // 2
    for part in (numbers[:half], numbers[half:]):
        yield from _split({number: probes[number] for number in part}, token)


def _text(probes: Mapping[int, Probe], token: str) -> str:
    functions = compose(f"token={token}\n", SEAL, *(fragment(name) for name in _FRAGMENTS))
    plain = "".join(_call(number, each) for number, each in probes.items() if not _needs_root(each))
    root = "".join(_call(number, each) for number, each in probes.items() if _needs_root(each))
    return (
        f"functions={quote(functions)}\nroot_probes={quote(root)}\n"
        f'eval "$functions"\nend_result begin 0\n{plain}{fragment("root_probes") if root else ""}'
    )


def _needs_root(probe: Probe) -> bool:
    return isinstance(probe, Stat) or probe.as_root


def _call(number: int, probe: Probe) -> str:
    arguments: tuple[object, ...]
    match probe:
        case RunProbe():
            seconds = max(1, round(probe.timeout.total_seconds()))
            name = "probe_run_as_root" if probe.as_root else "probe_run"
            arguments = (name, number, probe.max_bytes, seconds, *checked_program(probe.argv))
        case ReadFile():
            prefix = base64.b64encode(probe.prefix).decode()
            path = checked_path(probe.path)
            arguments = ("probe_file", number, probe.max_bytes, path, len(probe.prefix), prefix)
        case Stat():
            digest = "yes" if probe.digest else "no"
            arguments = ("probe_stat", number, checked_path(probe.path), digest)
    return command_line(*(str(argument) for argument in arguments)) + "\n"


def parse_results(script: ProbeScript, *, token: str, output: bytes) -> dict[Probe, ProbeResult]:
    """Return the results in an output; missing results are left out."""
    results: dict[Probe, ProbeResult] = {}
    for number, code, content in _frames(token, output):
        probe = script.probes.get(number)
        if probe is not None:
            results[probe] = _parse_result(probe, code, content)
    return results


def _frames(token: str, output: bytes) -> Iterator[tuple[int, int, bytes]]:
    heads = re.compile(rb"^@" + token.encode() + rb" (begin|\d+) (\d+)\r?$", re.MULTILINE)
    start = 0
    for head in heads.finditer(output):
        if head[1] != b"begin":
            content = base64.b64decode(output[start : head.start()])
            yield int(head[1]), int(head[2]), content
        start = head.end()


def _parse_result(probe: Probe, code: int, content: bytes) -> ProbeResult:
    match probe:
        case RunProbe():
            return RunResult(code, content)
        case ReadFile():
            return content if code == 0 else None
        case Stat():
            return _file_stat(content) if code == 0 else None


def _file_stat(content: bytes) -> FileStat | None:
    description, _, target = content.partition(b"\n")
    fields = description.decode("utf-8", "replace").split(" ")
    if len(fields) != 4:
        # It was removed between the test for existence and ls.
        return None
    mode, owner, size, digest = fields
    kind = _KINDS.get(mode[0], OTHER)
    return FileStat(
        kind,
        mode=0 if kind == LINK else _mode(mode),
        owner=owner,
        size=int(size) if kind == FILE else 0,
        target=target.decode("utf-8", "surrogateescape").removesuffix("\n"),
        digest="" if digest == "-" else digest,
    )


def _mode(text: str) -> int:
    """Return the mode bits for the text of `ls`, such as -rwsr-x--t."""
    bits = 0
    for position, char in enumerate(text[1:10]):
        if char not in "-ST":
            bits |= 0o400 >> position
        if char in "sStT":
            bits |= 0o4000 >> (position // 3)
    return bits
