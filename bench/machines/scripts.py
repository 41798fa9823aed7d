"""The scripts of `host.rendering`, read back into probes and commands, so that a Mac that is a model can answer them without a shell.

Only what an update sends is read: probes, batches and streams; commands with passwords or prompts are refused.
"""

from __future__ import annotations

import base64
import re
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from bramley.host import commands
from bramley.host.commands import Batchable, Probe, ReadFile, RunProbe, Stat
from bramley.host.facts import FOLDER, LINK, FileStat, ProbeResult, RunResult
from bramley.host.rendering.script import fragment

_PROBES = frozenset({"probe_run", "probe_run_as_root", "probe_file", "probe_stat"})
_THEN = " || exit\nfunctions="
_BEGIN = re.compile(r"^begin \d+\n", re.MULTILINE)
_AS_USER = ("sudo", "-n", "-H", "-u")
_MARKED = ("/bin/sh", "-c")


class UnknownScript(Exception):
    """A script that an update does not send."""


class Script(NamedTuple):
    """A script with its arguments, and the probes that follow it."""

    text: str
    arguments: tuple[str, ...] = ()
    is_root: bool = False
    probes: str = ""

    @classmethod
    def parse(cls, line: str) -> Script:
        """Return the script of a command line."""
        words = shlex.split(line)
        shell = words.index("-c")
        text, arguments = words[shell + 1], tuple(words[shell + 3 :])
        if _THEN not in text or text.startswith("functions="):
            return cls(text, arguments, "sudo" in words[:shell])
        batch, _, rest = text.partition(_THEN)
        return cls.parse(batch)._replace(probes=f"functions={rest}")

    @property
    def is_stream(self) -> bool:
        """Return whether it receives a file."""
        return fragment("receive_file") in self.text

    @property
    def is_batch(self) -> bool:
        """Return whether its input is a program of commands."""
        return fragment("batch") in self.text


class Probes(NamedTuple):
    """The probes of a script by number, and the token of their results."""

    token: str
    numbered: Mapping[int, Probe]

    @classmethod
    def parse(cls, text: str) -> Probes:
        """Return the probes of a script."""
        functions, root, *plain = shlex.split(text.partition(fragment("root_probes"))[0])
        token = re.search(r"token=(\w+)\n", functions)
        if token is None:
            raise UnknownScript(text[:200])
        words = shlex.split(root.removeprefix("root_probes="))
        calls = [*_calls(plain), *_calls(words)]
        return cls(token[1], {int(call[1]): _probe(call) for call in calls})

    def output(self, results: Mapping[Probe, ProbeResult]) -> bytes:
        """Return the results as the script prints them."""
        frames = [f"\n@{self.token} begin 0\n".encode()]
        for number, probe in self.numbered.items():
            code, content = _result(results[probe])
            frames += [base64.b64encode(content), f"\n@{self.token} {number} {code}\n".encode()]
        return b"".join(frames)


def _calls(words: Sequence[str]) -> Iterator[Sequence[str]]:
    starts = [number for number, word in enumerate(words) if word in _PROBES]
    for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
        yield words[start:end]


def _probe(call: Sequence[str]) -> Probe:
    match call:
        case ["probe_file", _, size, path, _, prefix]:
            # Whether the model reads as root follows from its own rules, as in the shell.
            content = base64.b64decode(prefix)
            return ReadFile(path, as_root=True, max_bytes=int(size), prefix=content)
        case ["probe_file", _, size, path, _]:
            return ReadFile(path, as_root=True, max_bytes=int(size))
        case ["probe_stat", _, path, digest]:
            return Stat(path, digest=digest == "yes")
        case [name, _, size, _, *argv]:
            return RunProbe(tuple(argv), as_root=name.endswith("as_root"), max_bytes=int(size))
    raise UnknownScript(str(call))


def _result(found: ProbeResult) -> tuple[int, bytes]:
    match found:
        case None:
            return 1, b""
        case RunResult():
            return found.code, found.output
        case FileStat():
            return 0, _stat_text(found)
    return 0, found


def _stat_text(found: FileStat) -> bytes:
    kind = {FOLDER: stat.S_IFDIR, LINK: stat.S_IFLNK}.get(found.kind, stat.S_IFREG)
    mode = stat.filemode(kind | found.mode)
    text = f"{mode} {found.owner} {found.size} {found.digest or '-'}\n{found.target}"
    return text.encode()


def decode(program: bytes) -> str:
    """Return the program of a batch from its input."""
    return base64.b64decode(program).decode()


class Step(NamedTuple):
    """One command of a batch."""

    command: Batchable
    accepted_codes: tuple[int, ...]
    is_failure_ignored: bool


def steps(program: str, *, is_root: bool) -> Iterator[Step]:
    """Yield the commands of a batch."""
    for part in _BEGIN.split(program)[1:]:
        body, _, end = part.rpartition("\nfinish ")
        _, _, codes, ignores = shlex.split(end)
        accepted = tuple(map(int, codes.split()))
        words, stdin = shlex.split(body), b""
        if words[0].startswith("input="):
            stdin = base64.b64decode(words.pop(0).removeprefix("input="))
        if words[-1] == ">/dev/null":
            words.pop()
        command = _command(words, stdin, accepted, is_root=is_root)
        yield Step(command, accepted, ignores == "yes")


def _command(
    words: Sequence[str], stdin: bytes, accepted: tuple[int, ...], *, is_root: bool
) -> Batchable:
    match words:
        case ["do_run_program", _, _, _, *argv]:
            program = _program(argv)
            as_root = is_root and len(program) == len(argv)
            return commands.Run(
                argv=program, purpose="", as_root=as_root, stdin=stdin, accepted_codes=accepted
            )
        case ["do_write_file", _, _, _, _, path, owner, mode, *check]:
            file: dict[str, Any] = {"owner": owner, "mode": int(mode, 8), "check": tuple(check)}
            return commands.Write(path=path, content=stdin, purpose="", **file)
        case ["wait_for", seconds, interval, code, _, text, _, _, *argv]:
            program = _program(argv)
            as_root = is_root and len(program) == len(argv)
            return _wait(RunProbe(program, as_root=as_root), seconds, interval, code, text)
        case [name, _, *arguments]:
            return _change(name, arguments)
    raise UnknownScript(str(words)[:200])


def _wait(probe: RunProbe, *values: str) -> commands.Wait:
    seconds, interval, code, text = values
    return commands.Wait(
        probe=probe,
        purpose="",
        text=text,
        code=int(code),
        interval=timedelta(seconds=float(interval)),
        timeout=timedelta(seconds=float(seconds)),
    )


def _program(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a program without the words that make it run as the user, and print a mark."""
    if tuple(argv[:4]) != _AS_USER:
        return tuple(argv)
    program = argv[6:]
    return tuple(program[4:]) if tuple(program[:2]) == _MARKED else tuple(program)


def _change(name: str, arguments: Sequence[str]) -> Batchable:
    match name, arguments:
        case "do_make_folder", [path, owner, mode]:
            return commands.Folder(path=path, purpose="", owner=owner, mode=int(mode, 8))
        case "do_make_link", [path, target]:
            return commands.Link(path=path, target=target, purpose="")
        case "do_rename", [path, to]:
            return commands.Rename(path=path, to=to, purpose="")
        case "do_remove", [path]:
            return commands.Remove(path=path, purpose="")
        case "do_write_seal", [path]:
            return commands.Seal(path=path, purpose="")
    raise UnknownScript(f"{name} {arguments}")
