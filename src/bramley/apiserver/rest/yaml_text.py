"""YAML as the API reads it: what JSON can say, and nothing that grows.

A module of its own, because the library takes as long to load as a tenth of the server's start, and few clients send YAML.
"""

from __future__ import annotations

import json
from typing import Any

import yaml


class NotYaml(ValueError):
    """Bytes that are not YAML, or YAML that is not read; the text says why."""


def read(data: bytes) -> Any:
    """Return the value of YAML bytes as JSON has it; raise NotYaml."""
    try:
        events = list(yaml.parse(data, Loader=yaml.SafeLoader))
        if any(isinstance(event, yaml.AliasEvent) for event in events):
            # A few lines of aliases can stand for gigabytes.
            raise NotYaml("document contains excessive aliasing")
        return _plain(yaml.load(data, Loader=_JsonLoader))  # noqa: S506 - a safe loader
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise NotYaml(" ".join(str(error).split())) from None


class _JsonLoader(yaml.SafeLoader):
    """Reads what JSON can say; a date stays the text that it is."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith("timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key)
