"""The string formats that Kubernetes validates, with the same results; other formats are not checked."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import unicodedata
from collections.abc import Callable, Mapping
from datetime import date
from urllib.parse import urlsplit

_HOSTNAME = re.compile(r"[a0s](?:-?[a0s]{0,62})?|(?:[a0s](?:[a0s-]{0,61}[a0s])?\.)+a{2,63}")
_EMAIL = re.compile(r"(?:[^<>]*<)?[^\s@<>\"(),:;\\\[\]]+@[^\s@<>\"(),:;\\]+>?")
_DAY_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})")
_GO_DURATION = re.compile(r"[-+]?(?:0|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_WORDED_DURATION = re.compile(r"\d+\s*([A-Za-zµ]+)")
_DURATION_UNIT = re.compile(
    r"ns|nano.*|us|µs|micro.*|ms|milli.*|s|sec.*|m|min.*|h|hr|hour.*|d|day.*|w|wk|week.*",
    re.IGNORECASE,
)
_MAC = re.compile(
    r"[0-9a-fA-F]{2}(?:([:-])[0-9a-fA-F]{2})(?:\1[0-9a-fA-F]{2}){4}(?:(?:\1[0-9a-fA-F]{2}){2}|(?:\1[0-9a-fA-F]{2}){14})?"
    r"|[0-9a-fA-F]{4}(?:\.[0-9a-fA-F]{4}){2}(?:\.[0-9a-fA-F]{4}|(?:\.[0-9a-fA-F]{4}){7})?"
)
_CARD = re.compile(
    r"(?:4\d{12}(?:\d{3})?|5[1-5]\d{14}|(?:222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}|6(?:011|5\d\d)\d{12}"
    r"|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|(?:2131|1800|35\d{3})\d{11}|6[27]\d{14})"
)
_RGB = re.compile(
    r"rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,"
    r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)"
)


def _matching(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: bool(compiled.fullmatch(text))


def _uuid(version: str, variant: str = "[0-9a-fA-F]") -> Callable[[str], bool]:
    hexa = "[0-9a-fA-F]"
    return _matching(
        f"{hexa}{{8}}-?{hexa}{{4}}-?{version}{hexa}{{3}}-?{variant}{hexa}{{3}}-?{hexa}{{12}}"
    )


def is_date(text: str) -> bool:
    """Return whether the text is a date of RFC 3339."""
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_date_time(text: str) -> bool:
    """Return whether the text is a date-time; as in Kubernetes, any character may start the fraction."""
    day, _, time = text.lower().partition("t")
    match = _DAY_TIME.fullmatch(time)
    if match is None or not is_date(day):
        return False
    hours, minutes, seconds = match.groups()
    return hours <= "23" and minutes <= "59" and seconds <= "59"


def is_duration(text: str) -> bool:
    """Return whether the text is a Go duration, or contains amounts with spelled-out units."""
    if _GO_DURATION.fullmatch(text):
        return True
    return any(_DURATION_UNIT.fullmatch(unit) for unit in _WORDED_DURATION.findall(text))


def is_hostname(text: str) -> bool:
    """Return whether the text is a host name; letters of any script are allowed."""
    short = len(text.encode()) <= 255 and all(len(part.encode()) <= 63 for part in text.split("."))
    return short and bool(_HOSTNAME.fullmatch("".join(map(_host_class, text))))


def _host_class(char: str) -> str:
    if char in "-.":
        return char
    if char.isalpha():
        return "a"
    if char.isascii() and char.isdigit():
        return "0"
    return "s" if unicodedata.category(char).startswith("S") else "!"


def is_uri(text: str) -> bool:
    """Return whether the text is an absolute URI or an absolute path."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    clean = text.isprintable() and " " not in text.partition("?")[0]
    return clean and (bool(parts.scheme) or text.startswith("/"))


def is_ipv4(text: str) -> bool:
    """Return whether the text is an IPv4 address; leading zeros are allowed."""
    if ":" in text:
        return "." in text and is_ipv6(text)
    parts = text.split(".")
    return len(parts) == 4 and all(
        part.isascii() and part.isdigit() and int(part) <= 255 for part in parts
    )


def is_ipv6(text: str) -> bool:
    """Return whether the text is an IPv6 address."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text


def is_cidr(text: str) -> bool:
    """Return whether the text is a CIDR block."""
    address, slash, length = text.partition("/")
    if not (slash and length.isascii() and length.isdigit()):
        return False
    if ":" in address:
        return is_ipv6(address) and int(length) <= 128
    return is_ipv4(address) and int(length) <= 32


def is_base64(text: str) -> bool:
    """Return whether the text is padded, non-empty base64."""
    try:
        return bool(base64.b64decode(text, validate=True))
    except binascii.Error:
        return False


def is_isbn10(text: str) -> bool:
    """Return whether the text is an ISBN-10 with a valid check digit."""
    digits = text.replace("-", "").replace(" ", "")
    if not re.fullmatch(r"[0-9]{9}X|[0-9]{10}", digits):
        return False
    total = sum((place + 1) * int(digit) for place, digit in enumerate(digits[:9]))
    return (total + 10 * (10 if digits[9] == "X" else int(digits[9]))) % 11 == 0


def is_isbn13(text: str) -> bool:
    """Return whether the text is an ISBN-13 with a valid check digit."""
    digits = text.replace("-", "").replace(" ", "")
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum(int(digit) * (1 + 2 * (place % 2)) for place, digit in enumerate(digits)) % 10 == 0


def is_credit_card(text: str) -> bool:
    """Return whether the digits of the text are a card number with a valid check digit."""
    digits = re.sub(r"[^0-9]+", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits)))
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "bsonobjectid": _matching("[0-9a-fA-F]{24}"),
    "uri": is_uri,
    "email": lambda text: bool(_EMAIL.fullmatch(text)),
    "hostname": is_hostname,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "cidr": is_cidr,
    "mac": lambda text: bool(_MAC.fullmatch(text)),
    "uuid": _uuid("[0-9a-fA-F]"),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89abAB]"),
    "uuid5": _uuid("5", "[89abAB]"),
    "isbn": lambda text: is_isbn10(text) or is_isbn13(text),
    "isbn10": is_isbn10,
    "isbn13": is_isbn13,
    "creditcard": is_credit_card,
    "ssn": _matching(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "hexcolor": _matching("#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": lambda text: bool(_RGB.fullmatch(text)),
    "byte": is_base64,
    "password": lambda _: True,
    "date": is_date,
    "duration": is_duration,
    "datetime": is_date_time,
}


def checker(name: str) -> Callable[[str], bool] | None:
    """Return the check of a format, or None if the format is unknown; dashes in the name are ignored."""
    return FORMATS.get(name.replace("-", ""))
