"""kubeconfig files: read, merged the way kubectl merges them, and one context chosen.

The first file that names a cluster, user or context wins; relative paths are meant from the folder of the file that holds
them. Whatever cannot be used is a `BadConfiguration` that names the file and the field. `identity` makes a user's part of it
into credentials.
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
from bramley.kube.credentials import as_secret
from bramley.kube.decoding import cause_of

if TYPE_CHECKING:
    import yaml


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Base of the parts of a kubeconfig, most of whose fields are written-like-this."""


class Extension(Part, frozen=True, kw_only=True):
    """Something that another program put there under its own name."""

    name: str
    extension: Any = None


class Cluster(Part, frozen=True, kw_only=True):
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
    """A program that makes credentials."""

    api_version: str = ""
    command: str = ""
    args: list[str] | None = None
    env: list[Variable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool = False
    interactive_mode: str | None = None


class Present:
    """Says that something was written there, and forgets what: it may hold tokens."""


class User(Part, frozen=True, kw_only=True):
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


class Context(Part, frozen=True, kw_only=True):
    """One pair of a server and an identity."""

    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class NamedCluster(Part, frozen=True, kw_only=True):
    """A cluster under its name."""

    name: str
    cluster: Cluster


class NamedUser(Part, frozen=True, kw_only=True):
    """A user under its name."""

    name: str
    user: User | None = None


class NamedContext(Part, frozen=True, kw_only=True):
    """A context under its name."""

    name: str
    context: Context


class Document(Part, frozen=True, kw_only=True):
    """One file."""

    current_context: str | None = None
    clusters: list[NamedCluster] | None = None
    users: list[NamedUser] | None = None
    contexts: list[NamedContext] | None = None


P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Found(Generic[P]):
    """A part and where it was found."""

    part: P
    file: Path
    field: str

    def at(self, name: str) -> str:
        """Return the place of one of its fields, for error messages."""
        return f"{self.file}: {self.field}.{name}"

    def path(self, text: str) -> Path:
        """Return a path of this part, meant from its file's folder."""
        return self.file.parent / text


@dataclass(frozen=True, slots=True)
class Chosen:
    """One context with the parts it names."""

    cluster: Found[Cluster]
    user: Found[User]
    namespace: str


def read(files: Sequence[Path], *, context: str | None = None) -> Chosen:
    """Read files that must exist, merge them and return the context that is asked for or the current one."""
    documents = [(file, _document(file)) for file in files]
    return _choose(documents, context)


def parse(text: Secret, place: str) -> Chosen:
    """Return the current context of a kubeconfig that is at hand; `place` is what errors call it."""
    file = Path(place)
    return _choose([(file, _typed(file, _loaded(file, text.reveal()) or {}))], None)


def _document(file: Path) -> Document:
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise errors.BadConfiguration(
            f"{file}: cannot be read ({reason}); name a kubeconfig with --kubeconfig or $KUBECONFIG"
        ) from error
    return _typed(file, _loaded(file, text) or {})


def _loaded(file: Path, text: str) -> Any:
    """Return the content of a file that is JSON, as ours are, or YAML, whose reader costs an agent a megabyte."""
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(text)
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        # The cause is dropped on purpose: YAML's errors quote the text around them, tokens included.
        raise errors.BadConfiguration(f"{file}: is not YAML{_line(error)}; mend it") from None


def _line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f" in line {mark.line + 1}" if mark else ""


def _typed(file: Path, loaded: Any) -> Document:
    try:
        return msgspec.convert(loaded, Document, dec_hook=_hidden)
    except msgspec.ValidationError as error:
        cause = cause_of(error)
        field = cause.field or "the whole file"
        raise errors.BadConfiguration(
            f"{file}: {field}: {cause.message}; mend it, or name another kubeconfig"
        ) from None


def _hidden(wanted: type, value: Any) -> Any:
    return Present() if wanted is Present else as_secret(wanted, value)


def _choose(documents: Sequence[tuple[Path, Document]], wanted: str | None) -> Chosen:
    named = [document.current_context for _, document in documents if document.current_context]
    name = wanted or next(iter(named), None)
    where = ", ".join(str(file) for file, _ in documents)
    contexts = _first_of_each("contexts", documents)
    if not name:
        raise errors.BadConfiguration(
            f"{where}: current-context: is not set; set it, or choose one of {_names(contexts)}"
        )
    context: Found[Context] = _get(contexts, name, f"{where}: contexts")
    part = context.part
    return Chosen(
        cluster=_get(_first_of_each("clusters", documents), part.cluster, context.at("cluster")),
        user=_user(documents, context),
        namespace=part.namespace or "default",
    )


def _user(documents: Sequence[tuple[Path, Document]], context: Found[Context]) -> Found[User]:
    if not context.part.user:
        return Found(User(), context.file, context.field)
    found = _get(_first_of_each("users", documents), context.part.user, context.at("user"))
    return Found(found.part or User(), found.file, found.field)


def _first_of_each(
    section: str, documents: Iterable[tuple[Path, Document]]
) -> Mapping[str, Found[Any]]:
    found: dict[str, Found[Any]] = {}
    singular = section.removesuffix("s")
    for file, document in documents:
        for entry in getattr(document, section) or []:
            place = f'{section}["{entry.name}"].{singular}'
            found.setdefault(entry.name, Found(getattr(entry, singular), file, place))
    return found


def _get(found: Mapping[str, Found[Any]], name: str, place: str) -> Found[Any]:
    if name not in found:
        raise errors.BadConfiguration(f"{place}: there is no {name!r}; there are {_names(found)}")
    return found[name]


def _names(found: Mapping[str, object]) -> str:
    return ", ".join(repr(name) for name in sorted(found)) or "none"
