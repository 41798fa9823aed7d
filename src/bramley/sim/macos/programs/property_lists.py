"""Property lists, read by a reader that has one kind of error whatever it stumbles over."""

from __future__ import annotations

import plistlib
from typing import Any
from xml.parsers.expat import ExpatError


class NoPropertyList(Exception):
    """Contents that are no property list, with what is wrong about them."""


def read(contents: bytes) -> Any:
    """Return what a property list holds."""
    try:
        return plistlib.loads(contents)
    # plistlib lets through whatever its parsing stumbles over.
    except (
        ExpatError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise NoPropertyList(str(error) or type(error).__name__) from error
