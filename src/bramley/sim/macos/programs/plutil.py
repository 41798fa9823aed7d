"""plutil: checks, prints and converts property lists, extracts values, and removes them from a file."""

from __future__ import annotations

import json
import plistlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from xml.parsers.expat import ExpatError

from bramley.sim.macos.call import Call, Result, may_replace, not_modelled, read_file

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac


_UNREADABLE = "file does not exist or is not readable or is not a regular file"


class Unreadable(Exception):
    """A file that plutil cannot read, with its message."""


def plutil(mac: Mac, call: Call) -> Result:
    """Check, convert to the standard output, extract, or remove."""
    words = [word for word in call.argv[1:] if word != "--"]
    try:
        match words:
            case ["-lint", "-s", *paths] | ["-s", "-lint", *paths] if paths:
                return _lint(mac, call, paths, is_quiet=True)
            case ["-lint", *paths] if paths and not paths[0].startswith("-"):
                return _lint(mac, call, paths, is_quiet=False)
            case ["-convert", form, "-o", "-", path] if form in _FORMS:
                return Result(out=_FORMS[form](_load(mac, call, path)))
            case ["-extract", key, "raw", "-o", "-", path] | ["-extract", key, "raw", path]:
                return _extract(_load(mac, call, path), key, path)
            case ["-remove", key, path]:
                return _remove(mac, call, key, path)
    except Unreadable as error:
        return Result(1, err=f"{words[-1]}: {error}\n")
    return not_modelled(call)


def _lint(mac: Mac, call: Call, paths: list[str], *, is_quiet: bool) -> Result:
    out, code = "", 0
    for path in paths:
        try:
            _load(mac, call, path)
            out += "" if is_quiet else f"{path}: OK\n"
        except Unreadable as error:
            out, code = f"{out}{path}: {error}\n", 1
    return Result(code, out=out)


def _load(mac: Mac, call: Call, path: str) -> Any:
    try:
        contents = call.stdin if path == "-" else read_file(mac, call, path)
    except PermissionError:
        contents = None
    if contents is None:
        raise Unreadable(_UNREADABLE)
    try:
        return read(contents)
    except InvalidPropertyList as error:
        raise Unreadable(f"Property List error: {error}") from error


def _extract(value: Any, key: str, path: str) -> Result:
    for part in key.split("."):
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (LookupError, TypeError, ValueError):
            message = f"Could not extract value, error: No value at that key path or invalid key path: {key}"
            return Result(1, err=f"{path}: {message}\n")
    if isinstance(value, bool):
        return Result(out=f"{str(value).lower()}\n")
    return Result(out=f"{len(value) if isinstance(value, list | dict) else value}\n")


def _remove(mac: Mac, call: Call, key: str, path: str) -> Result:
    """Remove a value from a file, which keeps its format, mode and owner."""
    whole = _load(mac, call, path)
    *parents, last = key.split(".")
    value = whole
    for part in (*parents, last):
        inside = value
        value = inside.get(part) if isinstance(inside, dict) else None
    if value is None:
        message = f"Could not modify plist, error: No value to remove at key path {key}"
        return Result(1, err=f"{path}: {message}\n")
    if not may_replace(mac, call, path):
        return Result(1, err=f"{path}: Could not write to file\n")
    del inside[last]
    is_binary = (mac.files.read(path) or b"").startswith(b"bplist")
    form = plistlib.FMT_BINARY if is_binary else plistlib.FMT_XML
    mode, owner = mac.files.mode(path), mac.files.owner(path)
    mac.files.write(path, plistlib.dumps(whole, fmt=form), mode=mode, owner=owner)
    return Result()


def _json(value: Any) -> str:
    try:
        return json.dumps(value)
    except TypeError as error:
        raise Unreadable("invalid object in plist for destination format") from error


_FORMS: dict[str, Callable[[Any], str]] = {
    "xml1": lambda value: plistlib.dumps(value).decode(),
    "json": _json,
}


class InvalidPropertyList(Exception):
    """A file that is not a property list, and why."""


def read(contents: bytes) -> Any:
    """Return the value of a property list."""
    try:
        value = plistlib.loads(contents)
    # plistlib does not wrap the errors of its parsers.
    except (ExpatError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:  # fmt: skip
        raise InvalidPropertyList(str(error) or type(error).__name__) from error
    if value is None:
        # Text without an element.
        raise InvalidPropertyList("Encountered unexpected EOF")
    return value


def read_dict(mac: Mac, path: str) -> dict[str, Any] | None:
    """Return the dictionary in a property list file; None if there is none that can be read."""
    content = mac.files.read(path)
    try:
        found = None if content is None else read(content)
    except InvalidPropertyList:
        return None
    return found if isinstance(found, dict) else None
