"""JSON values as CEL sees them: typed by the schema, with fields spelled as expressions must spell them.

Numbers of type number are doubles also without a fraction; texts with the format date-time, date, duration or byte are times,
durations and bytes. Schemas that need none of it are passed through untouched.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from bramley.apiserver.schema.expressions import escaped

Schema = Mapping[str, Any]
Convert = Callable[[Any], Any]

_PART = re.compile(r"([0-9]*\.?[0-9]*)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}


def compile_conversion(schema: Any) -> Convert | None:
    """Return a function that turns a value into CEL's; None when there is nothing to turn."""
    if not isinstance(schema, Mapping):
        return None
    if schema.get("type") == "string":
        return _TEXTS.get((schema.get("format") or "").replace("-", ""))
    if schema.get("type") == "number":
        return _double
    return _list(schema) or _object(schema)


def _list(schema: Schema) -> Convert | None:
    one = compile_conversion(schema.get("items"))
    if one is None:
        return None
    return lambda value: [one(item) for item in value] if type(value) is list else value


def _object(schema: Schema) -> Convert | None:
    known = schema.get("properties") or {}
    below = {name: one for name in known if (one := compile_conversion(known[name]))}
    spelled = {name: escaped(name) or name for name in known}
    extra = compile_conversion(schema.get("additionalProperties"))
    renamed = any(name != new for name, new in spelled.items())
    if not (below or renamed or extra):
        return None

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            return value
        out: dict[str, Any] = {}
        for name, item in value.items():
            one = below.get(name) if name in known else extra
            label = str(spelled.get(name, name))
            out[label] = item if one is None or item is None else one(item)
        return out

    return convert


def _double(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _time(value: Any) -> Any:
    try:
        when = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return value
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _duration(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    seconds = sum(float(amount or 0) * _SECONDS[unit] for amount, unit in _PART.findall(value))
    return timedelta(seconds=-seconds if value.startswith("-") else seconds)


def _bytes(value: Any) -> Any:
    try:
        return base64.b64decode(value)
    except (TypeError, ValueError):
        return value


_TEXTS: Mapping[str, Convert] = {
    "datetime": _time,
    "date": _time,
    "duration": _duration,
    "byte": _bytes,
}
