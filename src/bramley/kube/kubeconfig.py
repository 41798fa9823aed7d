"""kubeconfig files: read, merged as kubectl merges them, and one context selected.

The first file that names a cluster, user or context wins; relative paths are relative to the directory of their file. Whatever
is invalid is a `BadConfiguration` that names the file and the field. `config_loader` turns the result into a client
configuration.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from bramley.base import errors
from bramley.base.secret import Secret
from bramley.kube.codec import cause_of
from bramley.kube.credentials import as_secret

if TYPE_CHECKING:
    import yaml


class KebabStruct(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Base of the entries of a kubeconfig, most of whose fields are in kebab-case."""


class Extension(KebabStruct, frozen=True, kw_only=True):
    """Data of another program, under its own name."""

    name: str
    extension: Any = None


class Cluster(KebabStruct, frozen=True, kw_only=True):
    """One server."""

    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: bytes | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    disable_compression: bool = False
    extensions: list[Extension] | None = None


class Variable(msgspec.Struct, frozen=True):
    """One variable for the environment of a plugin."""

    name: str
    value: Secret


class Exec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A program that issues credentials."""

    api_version: str = ""
    command: str = ""
    args: list[str] | None = None
    env: list[Variable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool = False
    interactive_mode: str | None = None


class Present:
    """Marks that a field is set, without its value: that may contain tokens."""


class User(KebabStruct, frozen=True, kw_only=True):
    """One identity."""

    client_certificate: str | None = None
    client_certificate_data: bytes | None = None
    client_key: str | None = None
    client_key_data: Secret | None = None
    token: Secret | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: Secret | None = None
    exec: Exec | None = None
    auth_provider: Present | None = None
    as_: str | None = msgspec.field(name="as", default=None)
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


class Context(KebabStruct, frozen=True, kw_only=True):
    """One pair of a server and an identity."""

    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class NamedCluster(KebabStruct, frozen=True, kw_only=True):
    """A cluster under its name."""

    name: str
    cluster: Cluster


class NamedUser(KebabStruct, frozen=True, kw_only=True):
    """A user under its name."""

    name: str
    user: User | None = None


class NamedContext(KebabStruct, frozen=True, kw_only=True):
    """A context under its name."""

    name: str
    context: Context


class Document(KebabStruct, frozen=True, kw_only=True):
    """One file."""

    current_context: str | None = None
    clusters: list[NamedCluster] | None = None
    users: list[NamedUser] | None = None
    contexts: list[NamedContext] | None = None


P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Located(Generic[P]):
    """An entry of a kubeconfig, and the file and field where it is."""

    entry: P
    file: Path
    field: str

    def at(self, name: str) -> str:
        """Return the location of one of its fields, for error messages."""
        return f"{self.file}: {self.field}.{name}"

    def path(self, text: str) -> Path:
        """Return a path of this entry, relative to its file's directory."""
        return self.file.parent / text


@dataclass(frozen=True, slots=True)
class SelectedContext:
    """One context with its cluster and user."""

    cluster: Located[Cluster]
    user: Located[User]
    namespace: str


def read(files: Sequence[Path], *, context: str | None = None) -> SelectedContext:
    """Read files that must exist, merge them, and return the requested context or the current one."""
    documents = [(file, _document(file)) for file in files]
    return _select(documents, context)


def parse(text: Secret, location: str) -> SelectedContext:
    """Return the current context of a kubeconfig given as text; errors call it `location`."""
    file = Path(location)
    return _select([(file, _converted(file, _loaded(file, text.reveal()) or {}))], None)


def _document(file: Path) -> Document:
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise errors.BadConfiguration(
            f"{file}: cannot be read ({reason}); name a kubeconfig with --kubeconfig or $KUBECONFIG"
        ) from error
    return _converted(file, _loaded(file, text) or {})


def _loaded(file: Path, text: str) -> Any:
    """Return the content of a file that is JSON, as those of this project are, or YAML, whose parser needs a megabyte."""
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(text)
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        # The cause is dropped on purpose: YAML's errors quote the text around them, tokens included.
        raise errors.BadConfiguration(f"{file}: is not valid YAML{_line(error)}; fix it") from None


def _line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f" in line {mark.line + 1}" if mark else ""


def _converted(file: Path, loaded: Any) -> Document:
    try:
        return msgspec.convert(loaded, Document, dec_hook=_hidden)
    except msgspec.ValidationError as error:
        cause = cause_of(error)
        field = cause.field or "the whole file"
        raise errors.BadConfiguration(
            f"{file}: {field}: {cause.message}; fix it, or name another kubeconfig"
        ) from None


def _hidden(expected_type: type, value: Any) -> Any:
    return Present() if expected_type is Present else as_secret(expected_type, value)


def _select(documents: Sequence[tuple[Path, Document]], requested: str | None) -> SelectedContext:
    names = [document.current_context for _, document in documents if document.current_context]
    name = requested or next(iter(names), None)
    files = ", ".join(str(file) for file, _ in documents)
    contexts = _first_of_each("contexts", documents)
    if not name:
        raise errors.BadConfiguration(
            f"{files}: current-context: is not set; set it, or choose one of {_names(contexts)}"
        )
    context: Located[Context] = _get(contexts, name, f"{files}: contexts")
    entry = context.entry
    return SelectedContext(
        cluster=_get(_first_of_each("clusters", documents), entry.cluster, context.at("cluster")),
        user=_user(documents, context),
        namespace=entry.namespace or "default",
    )


def _user(documents: Sequence[tuple[Path, Document]], context: Located[Context]) -> Located[User]:
    if not context.entry.user:
        return Located(User(), context.file, context.field)
    located = _get(_first_of_each("users", documents), context.entry.user, context.at("user"))
    return Located(located.entry or User(), located.file, located.field)


def _first_of_each(
    section: str, documents: Iterable[tuple[Path, Document]]
) -> Mapping[str, Located[Any]]:
    entries: dict[str, Located[Any]] = {}
    singular = section.removesuffix("s")
    for file, document in documents:
        for entry in getattr(document, section) or []:
            location = f'{section}["{entry.name}"].{singular}'
            entries.setdefault(entry.name, Located(getattr(entry, singular), file, location))
    return entries


def _get(entries: Mapping[str, Located[Any]], name: str, location: str) -> Located[Any]:
    if name not in entries:
        raise errors.BadConfiguration(
            f"{location}: {name!r} does not exist; choose one of {_names(entries)}"
        )
    return entries[name]


def _names(entries: Mapping[str, object]) -> str:
    return ", ".join(repr(name) for name in sorted(entries)) or "none"
