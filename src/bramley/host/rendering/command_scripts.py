"""Commands as shell: each is one script with its values as arguments.

Secrets are never part of a script: they are sent as input once the script runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret, SecretBytes
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
    remote_seconds,
)

Rendered = Run | Write | Stream | Folder | Link | Rename | Remove | Seal
_NO_INPUT = SecretBytes(b"")
# The functions of scripts that read input and end with the connection.
_WITH_INPUT = ("fail", "read_input", "process_timeout")


def render(command: Rendered, *, token: str) -> Script:
    """Return a command as shell; `token` must be unique."""
    match command:
        case Run():
            return (_run_on_terminal if command.prompt else _run)(command, token)
        case Write():
            return _write(command, token)
        case Stream():
            return _stream(command, token)
        case _:
            return _path_script(command, token)


def _path_script(command: Folder | Link | Rename | Remove | Seal, token: str) -> Script:
    match command:
        case Folder():
            values = (checked_path(command.path), command.owner, _octal(command.mode))
            return _script(("fail", "make_folder"), (token, *values))
        case Link():
            fragments = ("fail", "install_file", "make_link")
            return _script(fragments, (token, checked_path(command.path), command.target))
        case Rename():
            arguments = (token, checked_path(command.path), checked_path(command.to))
            return _script(("fail", "rename"), arguments)
        case Remove():
            return _script(("fail", "remove"), (token, checked_removable_path(command.path)))
        case Seal():
            return _script(("fail", "digest", "write_seal"), (token, checked_path(command.path)))


def _run(command: Run, token: str) -> Script:
    stdin = content_of(command.stdin)
    encoded = encode(stdin) if stdin else _NO_INPUT
    program = checked_program(command.argv)
    arguments = (token, remote_seconds(command.timeout), _length(encoded), *program)
    root, password = command.as_root, command.sudo_password
    fragments = (*_WITH_INPUT, "run_program")
    return _script(fragments, arguments, root=root, password=password, stdin=encoded)


def _run_on_terminal(command: Run, token: str) -> Script:
    if command.sudo_password:
        raise BadConfiguration("a program with a prompt cannot get a sudo password as well")
    arguments = (token, remote_seconds(command.timeout), *checked_program(command.argv))
    return _script(("process_timeout", "run_on_terminal"), arguments, root=command.as_root)


def _write(command: Write, token: str) -> Script:
    content = content_of(command.content)
    encoded = encode(content)
    arguments = (
        token,
        remote_seconds(command.timeout),
        _length(encoded),
        str(len(content)),
        checked_path(command.path),
        command.owner,
        _octal(command.mode),
        *(checked_program(command.check) if command.check else ()),
    )
    fragments = (*_WITH_INPUT, "install_file", "write_file")
    return _script(fragments, arguments, password=command.sudo_password, stdin=encoded)


def _stream(command: Stream, token: str) -> Script:
    artifact = command.artifact
    target = (checked_path(command.path), command.owner, _octal(command.mode))
    arguments = (token, *target, str(artifact.size), artifact.sha256)
    return _script(("fail", "install_file", "digest", "receive_file"), arguments)


def _script(
    fragments: Sequence[str],
    arguments: Sequence[str],
    *,
    root: bool = True,
    password: Secret | None = None,
    stdin: SecretBytes = _NO_INPUT,
) -> Script:
    text = compose(SEAL if "digest" in fragments else "", *(fragment(name) for name in fragments))
    token = arguments[0]
    prompt = f"{token}?" if root and password else ""
    line = as_root(text, *arguments, sudo_prompt=prompt) if root else as_user(text, *arguments)
    return Script(line=line, token=token, input=stdin, sudo_prompt=prompt)


def _length(encoded: SecretBytes) -> str:
    return str(len(encoded.reveal()))


def _octal(mode: int) -> str:
    return f"{mode:04o}"
