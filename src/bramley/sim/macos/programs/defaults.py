"""defaults: preferences as property lists, in the same files as on macOS.

A domain that is a path is that file; any other belongs to the calling user, root included: what root writes without a path is
below /var/root. A written file is readable by its owner only, whatever its mode was; for other users the domain does not exist.
"""

from __future__ import annotations

import plistlib
import posixpath
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from bramley.sim.macos import users
from bramley.sim.macos.call import Call, NotModelled, Result, may_replace, read_file
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import plutil

GLOBAL = ".GlobalPreferences"
_GLOBAL_NAMES = ("-g", "-globalDomain", "NSGlobalDomain", "Apple Global Domain")
# Appended to the domain of preferences of one Mac.
HARDWARE_UUID = "5B1F7A60-0C5E-5E5C-9B0A-4D1F2E3C4B5A"
_PLAIN = re.compile(r"[A-Za-z0-9]+")
_MODE = 0o600
# The types of values that these words append to.
_APPENDABLE: dict[str, type] = {"-array-add": list, "-dict-add": dict}
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")

Verb = Callable[[Mac, Call, str, list[str]], Result]


def defaults(mac: Mac, call: Call) -> Result:
    """Read, write or delete one preference, or a whole domain."""
    words = list(call.argv[1:])
    by_host = words[:1] == ["-currentHost"]
    words = words[1:] if by_host else words
    if len(words) < 2 or words[0] not in _VERBS:
        raise NotModelled
    return _VERBS[words[0]](mac, call, _file(mac, call, words[1], by_host=by_host), words[2:])


def _preferences(mac: Mac, call: Call, path: str) -> dict[str, Any] | None:
    """Return the preferences in a file; None if this user cannot read any."""
    try:
        read_file(mac, call, path)
    except PermissionError:
        return None
    return plutil.read_dict(mac, path)


def _read(mac: Mac, call: Call, path: str, words: list[str]) -> Result:
    preferences = _preferences(mac, call, path)
    if preferences is None and not words:
        return _error(mac, f"Domain {_domain(call)} does not exist")
    if not words:
        return Result(out=_format(preferences, 0) + "\n")
    [key] = _exactly(words, 1)
    if preferences is None or key not in preferences:
        return _no_pair(mac, call, key)
    value = preferences[key]
    return Result(out=(value if isinstance(value, str) else _format(value, 0)) + "\n")


def _read_type(mac: Mac, call: Call, path: str, words: list[str]) -> Result:
    [key] = _exactly(words, 1)
    preferences = _preferences(mac, call, path) or {}
    if key not in preferences:
        return _no_pair(mac, call, key)
    return Result(out=f"Type is {_type(preferences[key])}\n")


def _write(mac: Mac, call: Call, path: str, words: list[str]) -> Result:
    if len(words) < 2:
        raise NotModelled("writing a whole domain from one word")
    preferences = _preferences(mac, call, path) or {}
    key, kind, values = words[0], words[1], words[2:]
    if not kind.startswith("-") or kind[1:].replace(".", "").isdigit():
        kind, values = "-string", words[1:]
    if key in preferences and not isinstance(preferences[key], _APPENDABLE.get(kind, object)):
        name = "an array" if kind == "-array-add" else "a dictionary"
        message = f"Value for key {key} is not {name}; cannot append.  Leaving defaults unchanged."
        return _error(mac, message)
    preferences[key] = _value(kind, values, preferences.get(key))
    return _save(mac, call, path, preferences)


def _delete(mac: Mac, call: Call, path: str, words: list[str]) -> Result:
    preferences = _preferences(mac, call, path)
    if preferences is None or (words and words[0] not in preferences):
        domain = call.argv[-1 - len(words)]
        return _error(mac, f"Domain ({domain}) not found.\nDefaults have not been changed.")
    if not words:
        if not may_replace(mac, call, path):
            return _unwritable(mac, call)
        mac.files.remove(path)
        return Result()
    [key] = _exactly(words, 1)
    del preferences[key]
    return _save(mac, call, path, preferences)


def _export(mac: Mac, call: Call, path: str, words: list[str]) -> Result:
    if words != ["-"]:
        raise NotModelled("exporting to a file")
    preferences = _preferences(mac, call, path)
    if preferences is None:
        return _error(mac, f"Domain {_domain(call)} does not exist")
    return Result(out=plistlib.dumps(preferences).decode())


_VERBS: dict[str, Verb] = {
    "read": _read,
    "read-type": _read_type,
    "write": _write,
    "delete": _delete,
    "remove": _delete,
    "export": _export,
}


def _save(mac: Mac, call: Call, path: str, preferences: dict[str, Any]) -> Result:
    if not may_replace(mac, call, path):
        return _unwritable(mac, call)
    folder = posixpath.dirname(path)
    owner = "root:wheel" if call.is_root else f"{call.user}:staff"
    if not mac.files.is_folder(folder):
        mac.files.make_folder(folder, owner=owner)
    contents = plistlib.dumps(preferences, fmt=plistlib.FMT_BINARY)
    try:
        mac.files.write(path, contents, mode=_MODE, owner=owner)
    except OSError:
        # The disk is full; the real program has no other message.
        return _unwritable(mac, call)
    return Result()


def _value(kind: str, values: list[str], current: Any) -> Any:
    if kind in {"-array", "-array-add"}:
        before = current if kind == "-array-add" and current else []
        return [*before, *_elements(values)]
    if kind in {"-dict", "-dict-add"}:
        entries = current if kind == "-dict-add" and current else {}
        return {**entries, **_entries(values)}
    [value] = _exactly(values, 1)
    return _scalar(kind, value)


def _boolean(value: str) -> bool:
    if value.lower() not in _TRUE + _FALSE:
        raise ValueError(value)
    return value.lower() in _TRUE


_SCALARS: dict[str, Callable[[str], Any]] = {
    "-string": str,
    "-int": int,
    "-integer": int,
    "-float": float,
    "-bool": _boolean,
    "-boolean": _boolean,
    "-data": bytes.fromhex,
}


def _elements(values: list[str]) -> list[str]:
    """Return the values of an array; types of its elements are not modelled."""
    if any(value.startswith("-") for value in values):
        raise NotModelled("types of single values in an array")
    return values


def _entries(words: list[str]) -> dict[str, Any]:
    """Return the entries of a dictionary: each value may have a type before it, and is text without one."""
    entries: dict[str, Any] = {}
    rest = list(words)
    while rest:
        key, kind = rest.pop(0), rest.pop(0) if rest[:1] and rest[0] in _SCALARS else "-string"
        if not rest or key.startswith("-"):
            raise NotModelled(" ".join(words))
        entries[key] = _scalar(kind, rest.pop(0))
    return entries


def _scalar(kind: str, value: str) -> Any:
    try:
        return _SCALARS[kind](value)
    except (KeyError, ValueError) as error:
        raise NotModelled(f"{kind} {value}") from error


def _exactly(words: list[str], count: int) -> list[str]:
    if len(words) != count:
        raise NotModelled(" ".join(words) or "too few words")
    return words


def _file(mac: Mac, call: Call, domain: str, *, by_host: bool) -> str:
    if domain.startswith("/"):
        return domain if domain.endswith(".plist") else f"{domain}.plist"
    name = GLOBAL if domain in _GLOBAL_NAMES else domain
    if name.startswith("-"):
        raise NotModelled(name)
    folder = f"{users.home_of(mac.state, call.user)}/Library/Preferences"
    return f"{folder}/ByHost/{name}.{HARDWARE_UUID}.plist" if by_host else f"{folder}/{name}.plist"


def _format(value: Any, depth: int) -> str:
    """Return a value in the format of old property lists."""
    inner, outer = "    " * (depth + 1), "    " * depth
    if isinstance(value, dict):
        pairs = (
            f"{inner}{_quoted(key)} = {_format(value[key], depth + 1)};\n" for key in sorted(value)
        )
        return "{\n" + "".join(pairs) + outer + "}"
    if isinstance(value, list):
        items = ",\n".join(f"{inner}{_format(item, depth + 1)}" for item in value)
        return "(\n" + (items + "\n" if value else "") + outer + ")"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, bytes):
        return f"{{length = {len(value)}, bytes = 0x{value.hex()}}}"
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return text if _PLAIN.fullmatch(text) else f'"{escaped}"'


def _type(value: Any) -> str:
    names = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "dictionary"}
    return names.get(type(value), {float: "float", bytes: "data"}.get(type(value), "date"))


def _domain(call: Call) -> str:
    return call.argv[3 if call.argv[1] == "-currentHost" else 2]


def _no_pair(mac: Mac, call: Call, key: str) -> Result:
    return _error(mac, f"The domain/default pair of ({_domain(call)}, {key}) does not exist")


def _unwritable(mac: Mac, call: Call) -> Result:
    return _error(mac, f"Could not write domain {_domain(call)}; exiting")


def _error(mac: Mac, message: str) -> Result:
    now = datetime.fromtimestamp(mac.now(), UTC)
    return Result(1, err=f"{now:%Y-%m-%d %H:%M:%S.000} defaults[412:3021] \n{message}\n")
