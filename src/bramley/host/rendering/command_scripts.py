"""Commands as shell: each is one script with its values as arguments, or one call in the program of a batch.

Secrets are never part of a script: they are sent as input once the script runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bramley.api.names import host as names
from bramley.base.errors import BadConfiguration
from bramley.base.secret import SecretBytes
from bramley.host.claim import Guard
from bramley.host.commands import Folder, Link, Remove, Rename, Run, Seal, Stream, Write
from bramley.host.rendering.script import (
    SEAL,
    Script,
    as_root,
    as_user,
    checked_path,
    checked_program,
    checked_removable_path,
    compose,
    content_of,
    encode,
    fragment,
    quote,
    remote_seconds,
)

Rendered = Run | Write | Stream | Folder | Link | Rename | Remove | Seal
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
NO_INPUT = SecretBytes(b"")
# Passes its input on in a variable, whose name is its own: `export` is a builtin, so the value is not in the process table.
_WITH_VARIABLE = 'export "$0=$(cat)"; exec "$@" </dev/null'
_REPORT = 'code=$?\n[ "$code" -eq 0 ] || check_claim\nquit "$code"\n'
# The functions of scripts that read input and end with the connection.
WITH_INPUT = ("fail", "read_input", "process_timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptParts:
    """A command as shell: the fragment that executes it, the functions it needs, its arguments after the token, and its input."""

    name: str
    functions: tuple[str, ...]
    arguments: tuple[str, ...]
    stdin: SecretBytes | None = None


def render(command: Rendered, *, token: str, guard: Guard | None = None) -> Script:
    """Return a command as shell; `token` must be unique. With a guard it is refused unless the Mac is claimed by this run."""
    root, password = needs_root(command), getattr(command, "sudo_password", None)
    if isinstance(command, Run) and command.prompt and password:
        raise BadConfiguration("a program with a prompt cannot get a sudo password as well")
    parts = parts_of(command)
    stdin = parts.stdin
    length = () if stdin is None else (str(len(stdin.reveal())),)
    # The length of the input comes after the timeout.
    arguments = (*parts.arguments[: len(length)], *length, *parts.arguments[len(length) :])
    text = _text(parts, token, guard, root=root)
    prompt = f"{token}?" if root and password else ""
    line = (
        as_root(text, token, *arguments, sudo_prompt=prompt)
        if root
        else as_user(text, token, *arguments)
    )
    return Script(line=line, token=token, input=stdin or NO_INPUT, sudo_prompt=prompt)


def needs_root(command: Rendered) -> bool:
    """Return whether a command is executed as root; everything but some programs is."""
    return not isinstance(command, Run) or command.as_root


def parts_of(command: Rendered) -> ScriptParts:
    """Return a command as shell."""
    match command:
        case Run():
            return _run(command)
        case Write():
            return _write(command)
        case Stream():
            return _stream(command)
        case _:
            return _path_parts(command)


def _path_parts(command: Folder | Link | Rename | Remove | Seal) -> ScriptParts:
    match command:
        case Folder():
            values = (checked_path(command.path), command.owner, _octal(command.mode))
            return _parts("make_folder", ("fail",), values)
        case Link():
            arguments = (checked_path(command.path), command.target)
            return _parts("make_link", ("fail", "install_file"), arguments)
        case Rename():
            return _parts(
                "rename", ("fail",), (checked_path(command.path), checked_path(command.to))
            )
        case Remove():
            return _parts("remove", ("fail",), (checked_removable_path(command.path),))
        case Seal():
            return _parts("write_seal", ("fail", "digest"), (checked_path(command.path),))


def _run(command: Run) -> ScriptParts:
    program = (remote_seconds(command.timeout), *_program(command))
    if command.prompt:
        return _parts("run_on_terminal", ("process_timeout",), program)
    stdin = content_of(command.stdin)
    return _parts("run_program", WITH_INPUT, program, encode(stdin) if stdin else NO_INPUT)


def _program(command: Run) -> tuple[str, ...]:
    program = checked_program(command.argv)
    if not command.stdin_variable:
        return program
    if command.prompt or not _VARIABLE.fullmatch(command.stdin_variable):
        raise BadConfiguration(
            f"{command.purpose}: a program with a prompt, or an invalid name, cannot get its input in a variable"
        )
    return ("/bin/sh", "-c", _WITH_VARIABLE, command.stdin_variable, *program)


def _write(command: Write) -> ScriptParts:
    content = content_of(command.content)
    arguments = (
        remote_seconds(command.timeout),
        str(len(content)),
        checked_path(command.path),
        command.owner,
        _octal(command.mode),
        *(checked_program(command.check) if command.check else ()),
    )
    return _parts("write_file", (*WITH_INPUT, "install_file"), arguments, encode(content))


def _stream(command: Stream) -> ScriptParts:
    artifact = command.artifact
    target = (checked_path(command.path), command.owner, _octal(command.mode))
    arguments = (*target, str(artifact.size), artifact.sha256)
    return _parts("receive_file", ("fail", "install_file", "digest"), arguments)


def _parts(
    name: str,
    functions: tuple[str, ...],
    arguments: tuple[str, ...],
    stdin: SecretBytes | None = None,
) -> ScriptParts:
    return ScriptParts(name=name, functions=functions, arguments=arguments, stdin=stdin)


def _text(parts: ScriptParts, token: str, guard: Guard | None, *, root: bool) -> str:
    texts = function_texts(parts.functions)
    if guard is None:
        return compose(*texts, fragment(parts.name))
    values = f"token={token} claim={quote(names.CLAIM)} claim_line={quote(guard.line)}\n"
    # Only root may announce itself, and only root changes anything.
    check = f"announce {guard.epoch}\ncheck_claim\n" if root else "check_claim\n"
    functions = function_texts(
        dict.fromkeys((*parts.functions, "fail", "process_timeout", "claim"))
    )
    body = f'execute() (\n{fragment(parts.name)})\nexecute "$@"\n'
    # A newer run may have stopped the command.
    return compose(*functions, values, check, body, _REPORT)


def function_texts(functions: Sequence[str] | dict[str, None]) -> list[str]:
    """Return the texts of these fragments."""
    return [SEAL if "digest" in functions else "", *(fragment(name) for name in functions)]


def _octal(mode: int) -> str:
    return f"{mode:04o}"
