"""Quantities such as `500m` or `16Gi`: parsed exactly, and formatted in the canonical form that a server stores.

Exact arithmetic is slow and the same few amounts come again and again, so the last ones read are remembered.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import NamedTuple

PATTERN = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")

# No amount needs more, and reading a number takes the longer, the more digits it has; Python itself gives up at some.
_LONGEST = 256
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)")


class InvalidQuantity(ValueError):
    """The text is not a quantity."""


class Quantity(NamedTuple):
    """An exact number, and the family of suffixes that it was written with."""

    value: Fraction
    family: str

    def __str__(self) -> str:
        if self.family == "binary" and abs(self.value) >= 1024:
            return _binary_text(ceil(self.value))
        return _decimal_text(self.value, exponents=self.family == "exponent")


@lru_cache(maxsize=1024)
def parse(text: str) -> Quantity:
    """Parse a quantity; InvalidQuantity if it is not one."""
    match = PATTERN.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or not _NUMBER.fullmatch(match.group(1)):
        raise InvalidQuantity(text)
    number, suffix = Fraction(match.group(1)), match.group(2)
    if suffix in _BINARY:
        return Quantity(_rounded(number * 1024 ** _BINARY[suffix]), "binary")
    if suffix in _DECIMAL:
        return Quantity(_rounded(number * Fraction(10) ** _DECIMAL[suffix]), "decimal")
    exponent = _EXPONENT.fullmatch(suffix)
    # A larger exponent than any real amount has would make numbers of any size out of a few bytes.
    if exponent is None or abs(int(exponent.group(1))) > 30:
        raise InvalidQuantity(text)
    return Quantity(_rounded(number * Fraction(10) ** int(exponent.group(1))), "exponent")


@lru_cache(maxsize=1024)
def canonical(text: str) -> str:
    """Return a quantity as a server stores it: whole, with the largest suffix that fits."""
    return str(parse(text))


def _rounded(value: Fraction) -> Fraction:
    # Nothing smaller than a billionth is kept, and what is cut off counts as one more.
    return Fraction(ceil(value * 10**9), 10**9)


def _binary_text(value: int) -> str:
    best, suffix = value, ""
    for name, power in _BINARY.items():
        if value % 1024**power == 0:
            best, suffix = value // 1024**power, name
    return f"{best}{suffix}"


def _decimal_text(value: Fraction, *, exponents: bool) -> str:
    if not value:
        return "0"
    fitting = [(name, power) for name, power in _DECIMAL.items() if _is_whole(value, power)]
    name, power = fitting[-1]
    number = value / Fraction(10) ** power
    if exponents:
        return f"{number}e{power}" if power else f"{number}"
    return f"{number}{name}"


def _is_whole(value: Fraction, power: int) -> bool:
    return (value / Fraction(10) ** power).denominator == 1
