"""Local files that `bramley host` reads: YAML, secrets and certificates, all bounded; errors name the field or flag."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret

MAX_BYTES = 256 * 1024
MAX_SECRET_BYTES = 64 * 1024
_INTEGER = "tag:yaml.org,2002:int"


class _DuplicateKey(Exception):
    """A mapping has a duplicate key."""


class _Loader(yaml.SafeLoader):
    """Reads as integers only what people do: YAML 1.1 also reads the ports 22:30 as 1350 and 0443 as 291."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _INTEGER]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(
    _INTEGER, re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z", re.ASCII), list("-+0123456789")
)


@contextmanager
def file_errors(field: str, path: Path) -> Iterator[None]:
    """Raise the error of an unreadable file with the field or flag that names it."""
    try:
        yield
    except OSError as error:
        # The path may be shown: only the content of the file may be secret.
        raise BadConfiguration(f"{field}: {error.strerror or error} ({path})") from None


def read(path: Path, *, field: str, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a file; `field` is the field or flag that names it."""
    with file_errors(field, path), path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise BadConfiguration(f"{path} is larger than {max_bytes // 1024} KiB")
    return content


def secret(path: Path, *, field: str, holds: str = "one secret") -> Secret:
    """Return the secret in a file, without the final newline; `field` is the field or flag that names the file."""
    try:
        text = read(path, field=field, max_bytes=MAX_SECRET_BYTES).decode()
    except UnicodeDecodeError:
        # Without the cause, which contains the secret.
        raise BadConfiguration(
            f"{field}: {path} is not valid UTF-8; it must contain {holds}"
        ) from None
    if not text.strip():
        raise BadConfiguration(f"{field}: {path} is empty; it must contain {holds}")
    return Secret(text.rstrip("\r\n"))


def read_yaml(path: Path, *, field: str) -> Any:
    """Return the value of a YAML file; duplicate keys are refused, because only one of them would be used."""
    content = read(path, field=field)
    try:
        return _load_yaml(content)
    except _DuplicateKey as error:
        raise BadConfiguration(f"{path}: {error}; only one of them would be used") from None
    # The parser does not wrap the errors of its constructors for dates, numbers and tags.
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError) as error:
        raise BadConfiguration(f"{path} is not valid YAML: {_one_line(error)}") from error


def _load_yaml(content: bytes) -> Any:
    loader = _Loader(content)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_duplicates(node, visited=set())
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _refuse_duplicates(node: yaml.Node, *, visited: set[int]) -> None:
    if id(node) in visited:
        # Reached again through an alias, possibly a recursive one.
        return
    visited.add(id(node))
    if isinstance(node, yaml.MappingNode):
        names = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if twice := [name[:80] for name, count in names.items() if count > 1]:
            line = node.start_mark.line + 1
            raise _DuplicateKey(f"duplicate key {', '.join(twice)} in the mapping at line {line}")
    for each in _children(node):
        _refuse_duplicates(each, visited=visited)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _one_line(error: Exception) -> str:
    # Without the parser's name for its input; the file is named already.
    return " ".join(str(error).replace('in "<byte string>", ', "in ").split())[:300]
