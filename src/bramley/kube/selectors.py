"""Label and field selectors as query values.

A mapping selects objects with equal values; its values are checked or escaped, so that a value taken from an object cannot
widen the selection. A string is passed as it is, for set-based and inequality selectors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from bramley.base import errors

Selector = Mapping[str, str] | str | None

_LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_FIELD_KEY = re.compile(r"[A-Za-z0-9_.\[\]-]+")
_FIELD_SPECIAL = re.compile(r"([\\,=])")


def query(labels: Selector, fields: Selector) -> dict[str, str]:
    """Return the query parameters of these selectors."""
    selectors = {"labelSelector": of_labels(labels), "fieldSelector": of_fields(fields)}
    return {key: text for key, text in selectors.items() if text}


def of_labels(labels: Selector) -> str:
    """Return a label selector; invalid labels are refused."""
    if labels is None or isinstance(labels, str):
        return labels or ""
    for key, value in labels.items():
        if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            raise errors.BadRequest(f"{key!r}={value!r} is not a valid label")
    return ",".join(f"{key}={value}" for key, value in labels.items())


def of_fields(fields: Selector) -> str:
    """Return a field selector with its values escaped."""
    if fields is None or isinstance(fields, str):
        return fields or ""
    for key in fields:
        if not _FIELD_KEY.fullmatch(key):
            raise errors.BadRequest(f"{key!r} is not a valid field path")
    return ",".join(f"{key}={_escaped(value)}" for key, value in fields.items())


def _escaped(value: str) -> str:
    return _FIELD_SPECIAL.sub(r"\\\1", value)
