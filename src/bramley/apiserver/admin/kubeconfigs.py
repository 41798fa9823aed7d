"""The admin kubeconfig of this server: address, authority and token in one private file."""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec

from bramley.apiserver.auth.bearer_tokens import ADMIN, ADMIN_GROUPS, Tokens
from bramley.apiserver.pki import private_files
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret

NAME = "bramley"


class _User(msgspec.Struct):
    token: str = ""


class _Named(msgspec.Struct):
    name: str = ""
    user: _User = msgspec.field(default_factory=_User)


class _Document(msgspec.Struct):
    """The fields of a kubeconfig that identify it as ours and hold our token."""

    clusters: list[_Named] = []
    users: list[_Named] = []


def refuse_foreign(path: Path) -> None:
    """Raise if the file exists and holds other clusters, which writing ours would lose."""
    content = private_files.read(path)
    if not content:
        return
    document = _parsed(content)
    if document is None or [each.name for each in document.clusters] != [NAME]:
        raise BadConfiguration(
            f"{path} was not written by Bramley and is left as it is; choose another file with --kubeconfig-out"
        )


def admin_token(path: Path, tokens: Tokens) -> Secret:
    """Return the token in the kubeconfig if it is still valid, else a new one that replaces it."""
    token = _token_in(path)
    user = tokens.identify(token)
    if token is not None and user is not None and user.name == ADMIN:
        return Secret(token)
    return tokens.issue(ADMIN, ADMIN_GROUPS)


def write(path: Path, *, server: str, authority: bytes, token: Secret) -> None:
    """Write the kubeconfig, readable by its owner only."""
    private_files.write(path, _rendered(server, authority, token).encode())


def _rendered(server: str, authority: bytes, token: Secret) -> str:
    # JSON strings are YAML strings, so no value can inject YAML.
    return f"""\
apiVersion: v1
kind: Config
current-context: {NAME}
clusters:
- name: {NAME}
  cluster:
    server: {_text(server)}
    certificate-authority-data: {base64.b64encode(authority).decode()}
contexts:
- name: {NAME}
  context:
    cluster: {NAME}
    user: {ADMIN}
users:
- name: {ADMIN}
  user:
    token: {_text(token.reveal())}
"""


def _text(value: str) -> str:
    return msgspec.json.encode(value).decode()


def _token_in(path: Path) -> str | None:
    document = _parsed(private_files.read(path) or b"")
    if document is None:
        return None
    return next((each.user.token for each in document.users if each.name == ADMIN), None)


def _parsed(content: bytes) -> _Document | None:
    if not content:
        return None
    if (own := _as_written(content)) is not None:
        return own
    import yaml

    try:
        return msgspec.convert(yaml.safe_load(content), _Document)
    except (yaml.YAMLError, UnicodeDecodeError, msgspec.ValidationError):
        return None


def _as_written(content: bytes) -> _Document | None:
    """Read a file that is unchanged since we wrote it, without the YAML library, which would slow down every start."""
    pairs = (line.strip().partition(": ") for line in content.decode(errors="replace").splitlines())
    values = {key: value for key, _, value in pairs}
    try:
        server = msgspec.json.decode(values["server"], type=str)
        token = msgspec.json.decode(values["token"], type=str)
        authority = base64.b64decode(values["certificate-authority-data"])
    except (KeyError, ValueError, msgspec.DecodeError):
        return None
    # Only if rendering the values again gives the same bytes, the lines were parsed correctly.
    if _rendered(server, authority, Secret(token)).encode() != content:
        return None
    return _Document([_Named(NAME)], [_Named(ADMIN, _User(token))])
