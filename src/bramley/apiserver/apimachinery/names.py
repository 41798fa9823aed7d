"""Grammars of names, label keys and values, and the messages about what does not match them.

The messages and the patterns in them are part of the API: people and tools read them. Lengths count bytes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

# A check gets a name and whether it is a prefix for a generated name, and returns what is wrong.
Check = Callable[[str, bool], list[str]]

VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DNS1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"

_IS_LABEL = re.compile(_LABEL)
_IS_SUBDOMAIN = re.compile(_SUBDOMAIN)
_IS_DNS1035 = re.compile(_DNS1035)
_IS_QUALIFIED = re.compile(_QUALIFIED)
_IS_VALUE = re.compile(_VALUE)
_IS_CONFIG_KEY = re.compile(_CONFIG_KEY)
_IS_PORT = re.compile("[-a-z0-9]+")
_HAS_LETTER = re.compile("[a-z]")

# No vowels and no digits that look like letters, so that no words are generated.
GENERATED_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_LENGTH = 5
_MAX_BASE_LENGTH = 63 - _GENERATED_LENGTH

_ALNUM_ENDS = "and must start and end with an alphanumeric character"
_QUALIFIED_RULE = f"must consist of alphanumeric characters, '-', '_' or '.', {_ALNUM_ENDS}"
_QUALIFIED_EXAMPLES = ("MyName", "my.name", "123-abc")


def generate(base: str, rng: random.Random) -> str:
    """Return the base, truncated if necessary, with five random characters appended."""
    suffix = "".join(rng.choices(GENERATED_ALPHABET, k=_GENERATED_LENGTH))
    return base[:_MAX_BASE_LENGTH] + suffix


def subdomain(name: str, is_prefix: bool = False) -> list[str]:  # noqa: FBT001, FBT002 - one grammar, two uses
    """Return why a name is not an RFC 1123 subdomain."""
    text = _masked(name) if is_prefix else name
    wrong = _too_long(text, 253)
    if not _IS_SUBDOMAIN.fullmatch(text):
        rule = f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ALNUM_ENDS}"
        wrong.append(_unmatched(rule, _SUBDOMAIN, "example.com"))
    return wrong


def label(name: str, is_prefix: bool = False) -> list[str]:  # noqa: FBT001, FBT002 - one grammar, two uses
    """Return why a name is not an RFC 1123 label."""
    text = _masked(name) if is_prefix else name
    wrong = _too_long(text, 63)
    if _IS_LABEL.fullmatch(text):
        return wrong
    if _IS_SUBDOMAIN.fullmatch(text):
        return [*wrong, "must not contain dots"]
    rule = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ALNUM_ENDS}"
    return [*wrong, _unmatched(rule, _LABEL, "my-name", "123-abc")]


def dns1035_label(name: str, is_prefix: bool = False) -> list[str]:  # noqa: FBT001, FBT002 - one grammar, two uses
    """Return why a name is not an RFC 1035 label, as Services need."""
    text = _masked(name) if is_prefix else name
    wrong = _too_long(text, 63)
    if not _IS_DNS1035.fullmatch(text):
        rule = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character"
        wrong.append(_unmatched(rule, _DNS1035, "my-name", "abc-123"))
    return wrong


def path_segment(name: str, is_prefix: bool = False) -> list[str]:  # noqa: FBT001, FBT002 - one grammar, two uses
    """Return why a name cannot be a path segment, which is the only rule of RBAC kinds."""
    if not is_prefix and name in {".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{each}'" for each in ("/", "%") if each in name]


def qualified_name(key: str) -> list[str]:
    """Return why a key is not a valid label key, annotation key or finalizer."""
    parts = key.split("/")
    if len(parts) > 2:
        rule = _unmatched(_QUALIFIED_RULE, _QUALIFIED, *_QUALIFIED_EXAMPLES)
        return [
            f"a qualified name {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    wrong = _prefix_part(parts[0]) if len(parts) == 2 else []
    return wrong + _name_part(parts[-1])


def label_value(value: str) -> list[str]:
    """Return why a text is not a label's value."""
    wrong = _too_long(value, 63)
    if not _IS_VALUE.fullmatch(value):
        rule = f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ALNUM_ENDS}"
        wrong.append(_unmatched(rule, _VALUE, "MyValue", "my_value", "12345"))
    return wrong


def config_key(key: str) -> list[str]:
    """Return why a text is not a key of a ConfigMap or Secret."""
    wrong = _too_long(key, 253)
    if not _IS_CONFIG_KEY.fullmatch(key):
        rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        wrong.append(_unmatched(rule, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if key in {".", ".."}:
        wrong.append(f"must not be '{key}'")
    elif key.startswith(".."):
        wrong.append("must not start with '..'")
    return wrong


def port(name: str) -> list[str]:
    """Return why a text is not the name of a port."""
    wrong = _too_long(name, 15)
    if not _IS_PORT.fullmatch(name):
        wrong.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _HAS_LETTER.search(name):
        wrong.append("must contain at least one letter (a-z)")
    if "--" in name:
        wrong.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        wrong.append("must not begin or end with a hyphen")
    return wrong


def _prefix_part(prefix: str) -> list[str]:
    if not prefix:
        return ["prefix part must be non-empty"]
    return [f"prefix part {each}" for each in subdomain(prefix)]


def _name_part(name: str) -> list[str]:
    wrong = _too_long(name, 63) if name else ["must be non-empty"]
    if not _IS_QUALIFIED.fullmatch(name):
        wrong.append(_unmatched(_QUALIFIED_RULE, _QUALIFIED, *_QUALIFIED_EXAMPLES))
    return [f"name part {each}" for each in wrong]


def _masked(prefix: str) -> str:
    # A dash at the end of a prefix is valid, because characters are appended to it.
    return prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def _too_long(text: str, limit: int) -> list[str]:
    too_long = len(text) > limit or (not text.isascii() and len(text.encode()) > limit)
    return [f"must be no more than {limit} characters"] if too_long else []


def _unmatched(rule: str, pattern: str, *examples: str) -> str:
    quoted_examples = " or ".join(f"'{each}', " for each in examples)
    return f"{rule} (e.g. {quoted_examples}regex used for validation is '{pattern}')"
