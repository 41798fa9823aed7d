"""Checks of counts that many kinds share: whole numbers that may not be negative, and numbers that may be percentages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.registry.resources import Json
from bramley.base.errors import Cause

_PERCENT = re.compile(r"[0-9]+%")
_NOT_NEGATIVE = "must be greater than or equal to 0"
_NOT_A_PERCENTAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)


def not_negative(holder: Json, names: Iterable[str], field: str) -> Iterator[Cause]:
    """Yield a breach for each of the named numbers that is below zero."""
    for name in names:
        if holder.get(name, 0) < 0:
            yield causes.invalid(f"{field}.{name}", holder[name], _NOT_NEGATIVE)


def amount(value: int | str, field: str) -> Iterator[Cause]:
    """Yield what is wrong with a number of things that may also be a percentage."""
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            yield causes.invalid(field, value, _NOT_A_PERCENTAGE)
    elif value < 0:
        yield causes.invalid(field, value, _NOT_NEGATIVE)


def at_most_all(value: int | str, field: str) -> Iterator[Cause]:
    """Yield a breach when a percentage is of more than there is."""
    if isinstance(value, str) and _PERCENT.fullmatch(value) and int(value[:-1]) > 100:
        yield causes.invalid(field, value, "must not be greater than 100%")
