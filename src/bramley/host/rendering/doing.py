"""Commands of the vocabulary as shell, each one script with its values as arguments.

Secrets are never part of a script: they come on the line once the script runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret, SecretBytes
from bramley.host.commands import Folder, Link, Remove, Rename, Run, Seal, Stream, Write
from bramley.host.rendering import quoting
from bramley.host.rendering.script import (
    SEAL,
    Script,
    as_root,
    as_user,
    compose,
    content_of,
    encode,
    part,
    seconds,
)

Rendered = Run | Write | Stream | Folder | Link | Rename | Remove | Seal
_NOTHING = SecretBytes(b"")


def render(command: Rendered, *, token: str) -> Script:
    """Return a command as shell; `token` must be another one each time."""
    match command:
        case Run():
            return (_run_on_terminal if command.prompt else _run)(command, token)
        case Write():
            return _write(command, token)
        case Stream():
            return _stream(command, token)
        case _:
            return _placed(command, token)


def _placed(command: Folder | Link | Rename | Remove | Seal, token: str) -> Script:
    match command:
        case Folder():
            arguments = (quoting.path(command.path), command.owner, _octal(command.mode))
            return _changing("folder", arguments, token)
        case Link():
            return _changing("link", (quoting.path(command.path), command.target), token, "place")
        case Rename():
            return _changing(
                "rename", (quoting.path(command.path), quoting.path(command.to)), token
            )
        case Remove():
            return _changing("remove", (quoting.removable(command.path),), token)
        case Seal():
            text = compose(SEAL, *(part(each) for each in ("fail", "digest", "listing", "seal")))
            return _script(text, (token, quoting.path(command.path)))


def _run(command: Run, token: str) -> Script:
    stdin = content_of(command.stdin)
    given = encode(stdin) if stdin else _NOTHING
    text = compose(_listening(), part("run"))
    program = quoting.program(command.argv)
    arguments = (token, seconds(command.within), _length(given), *program)
    root, password = command.as_root, command.sudo_password
    return _script(text, arguments, root=root, password=password, given=given)


def _run_on_terminal(command: Run, token: str) -> Script:
    if command.sudo_password:
        raise BadConfiguration("a program with a prompt takes nothing but what is typed there")
    text = compose(part("watch"), part("prompt"))
    arguments = (token, seconds(command.within), *quoting.program(command.argv))
    return _script(text, arguments, root=command.as_root)


def _write(command: Write, token: str) -> Script:
    content = content_of(command.content)
    given = encode(content)
    check = quoting.program(command.check) if command.check else ()
    text = compose(_listening(), part("place"), part("write"))
    arguments = (
        token,
        seconds(command.within),
        _length(given),
        str(len(content)),
        quoting.path(command.path),
        command.owner,
        _octal(command.mode),
        *check,
    )
    return _script(text, arguments, password=command.sudo_password, given=given)


def _stream(command: Stream, token: str) -> Script:
    artifact = command.artifact
    mode = _octal(command.mode)
    where = (quoting.path(command.path), command.owner, mode)
    return _changing(
        "stream", (*where, str(artifact.size), artifact.sha256), token, "place", "digest"
    )


def _changing(name: str, arguments: Sequence[str], token: str, *needs: str) -> Script:
    text = compose(part("fail"), *(part(each) for each in needs), part(name))
    return _script(text, (token, *arguments))


def _script(
    text: str,
    arguments: Sequence[str],
    *,
    root: bool = True,
    password: Secret | None = None,
    given: SecretBytes = _NOTHING,
) -> Script:
    token = arguments[0]
    asks = f"{token}?" if root and password else ""
    line = as_root(text, *arguments, asks=asks) if root else as_user(text, *arguments)
    return Script(line=line, token=token, given=given, asks=asks)


def _listening() -> str:
    """Return what scripts need that take something from the line, and end with it."""
    return "".join(part(name) for name in ("fail", "take", "watch", "attend"))


def _length(given: SecretBytes) -> str:
    return str(len(given.reveal()))


def _octal(mode: int) -> str:
    return f"{mode:04o}"
