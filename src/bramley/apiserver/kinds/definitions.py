"""Helpers that define built-in kinds: `kind` for the kind itself, the others for its strategy."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.registry.resources import Json, ServedResource, Strategy, ValidateUpdate
from bramley.base.errors import Cause

_DEFAULT = Strategy()


def kind(
    name: str, *, strategy: Strategy = _DEFAULT, group: str = "", plural: str = "", **extra: Any
) -> ServedResource:
    """Return a built-in kind, by default namespaced and of version v1; `extra` are fields of ServedResource.

    Its shape is by default `v1.` and its name, without a shape if its schema is among `extra`.
    """
    if not strategy.shape and "schema" not in extra:
        strategy = replace(strategy, shape=f"v1.{name}")
    fields = {"namespaced": True, "version": "v1", "plural": plural or f"{name.lower()}s", **extra}
    return ServedResource(group=group, kind=name, strategy=strategy, is_custom=False, **fields)


def initial_status(**status: Any) -> Callable[[Json], None]:
    """Return a hook that sets the initial status of a new object."""

    def prepare_for_create(new: Json) -> None:
        new["status"] = deepcopy(status)

    return prepare_for_create


def set_defaults(**fields: Any) -> Callable[[Json], None]:
    """Return a hook that sets top-level fields that an object leaves out."""

    def default(new: Json) -> None:
        for field, value in fields.items():
            new.setdefault(field, deepcopy(value))

    return default


def go_struct(**fields: Any) -> str:
    """Return fields as kube-apiserver shows a Go struct in a message: under Go's names and in its order."""
    return "{" + ",".join(f'"{key}":{causes.text(value)}' for key, value in fields.items()) + "}"


def immutable(*fields: str) -> ValidateUpdate:
    """Return a hook that refuses changes of top-level fields."""

    def validate_update(new: Json, old: Json) -> list[Cause]:
        return [
            causes.invalid(field, new.get(field), "field is immutable")
            for field in fields
            if new.get(field) != old.get(field)
        ]

    return validate_update
