"""The configured labels and taints that an agent registers its Node with, recorded on its ServiceAccount.

The record is made by the creator of the identity, and not by the agent, which may not write ServiceAccounts; so a policy can compare a
Node with it. Labels and the taint that every agent sets itself are not part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bramley.api import taints
from bramley.api.names import access
from bramley.base import errors
from bramley.kube import selectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Labels, and taints in the notation of kubectl."""

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()

    def annotations(self) -> dict[str, str]:
        """Return the record, `k=v,k=v` and `key[=value]:Effect,…` in a fixed order; BadConfiguration if a label or a taint is invalid."""
        try:
            labels = selectors.of_labels(dict(sorted(self.labels.items())))
            taints.parse(self.taints)
        except (errors.BadRequest, ValueError) as error:
            raise errors.BadConfiguration(str(error)) from None
        # Also an empty one, so that what is not configured any more is dropped.
        return {access.NODE_LABELS: labels, access.REGISTER_TAINTS: ",".join(sorted(self.taints))}


def parse(labels: str, taints: str) -> Registration:
    """Return the registration in the notation of the agent's flags."""
    pairs = dict(_pair(each) for each in _parts(labels))
    return Registration(labels=pairs, taints=_parts(taints))


def _parts(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise errors.BadConfiguration(f"{text!r} is not key=value; write it like zone=par-1,rack=7")
    return key.strip(), value.strip()
