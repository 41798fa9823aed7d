"""How a built-in kind is written down: one call with what is special about it."""

from __future__ import annotations

from typing import Any

from bramley.apiserver.registry.resources import Rules, ServedResource


def kind(
    name: str, *, rules: Rules, group: str = "", plural: str = "", **more: Any
) -> ServedResource:
    """Return a built-in kind, of version v1 if nothing else is said; `more` are fields of ServedResource."""
    whole = {"namespaced": True, "version": "v1", **more}
    return ServedResource(
        group=group,
        kind=name,
        plural=plural or f"{name.lower()}s",
        rules=rules,
        is_custom=False,
        **whole,
    )
