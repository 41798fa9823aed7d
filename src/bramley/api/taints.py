"""Taints in the notation of kubectl and the kubelet, `KEY[=VALUE]:EFFECT`, by Kubernetes' grammar."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bramley.api.core import Taint
from bramley.api.names import labels

EFFECTS = (labels.NO_SCHEDULE, labels.PREFER_NO_SCHEDULE, labels.NO_EXECUTE)
_EXAMPLE = "write it like dedicated=builders:NoSchedule"
_DNS_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:(?=.{{1,253}}/){_DNS_LABEL}(?:\.{_DNS_LABEL})*/)?{_WORD}", re.ASCII)
_VALUE = re.compile(rf"(?:{_WORD})?", re.ASCII)
_MAX_LENGTH = 512
_MAX_QUOTED = 80


def parse(texts: Iterable[str]) -> tuple[Taint, ...]:
    """Parse a list of taints; ValueError names the invalid one and what is wrong."""
    taints: list[Taint] = []
    for text in texts:
        taint = _parse(text)
        if any((taint.key, taint.effect) == (each.key, each.effect) for each in taints):
            raise ValueError(f"{text!r} has the key and the effect of another taint; remove one")
        taints.append(taint)
    return tuple(taints)


def _parse(text: str) -> Taint:
    # The length must be checked first, so that no pattern runs on a huge text.
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"{text[:_MAX_QUOTED]!r}… is longer than {_MAX_LENGTH} characters")
    name, _, effect = text.rpartition(":")
    if not name:
        raise ValueError(f"{text!r} is not KEY[=VALUE]:EFFECT; {_EXAMPLE}")
    if effect not in EFFECTS:
        raise ValueError(f"{text!r} has the unknown effect {effect!r}; use {', '.join(EFFECTS)}")
    key, _, value = name.partition("=")
    if not _KEY.fullmatch(key):
        raise ValueError(f"{text!r} has the invalid key {key!r}; {_EXAMPLE}")
    if not _VALUE.fullmatch(value):
        raise ValueError(f"{text!r} has the invalid value {value!r}; {_EXAMPLE}")
    return Taint(key=key, value=value, effect=effect)
