"""Arguments as tart's parser reads them: `--name value` or `--name=value`, in any order; usage errors exit with code 64.

argparse is not used: its messages differ, and it would add a quarter to the time of a call.
"""

from collections.abc import Sequence
from typing import NamedTuple

from bramley.sim.tart.failures import WrongUsage


class Syntax(NamedTuple):
    """The syntax of one command; `takes_rest` passes everything after the positionals to the guest."""

    positionals: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    short: tuple[tuple[str, str], ...] = ()
    repeats_last: bool = False
    takes_rest: bool = False


class Arguments:
    """The arguments of one call; the last value of an option counts, `every` returns all."""

    def __init__(self, syntax: Syntax) -> None:
        self.syntax = syntax
        self.positionals: list[str] = []
        self.values: dict[str, list[str]] = {}
        self.present: set[str] = set()

    def __getitem__(self, positional: str) -> str:
        return self.positionals[self.syntax.positionals.index(positional)]

    def find(self, option: str) -> str | None:
        """Return the value of an option, or None."""
        return self.values[option][-1] if option in self.values else None

    def every(self, option: str) -> list[str]:
        """Return all values of an option that may repeat."""
        return self.values.get(option, [])

    def has(self, flag: str) -> bool:
        """Return whether a flag was given."""
        return flag in self.present

    def integer(self, option: str, default: int | None = None) -> int | None:
        """Return the whole number of an option."""
        text = self.find(option)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise WrongUsage(f"The value '{text}' is invalid for '--{option} <{option}>'") from None

    def whole(self, option: str, default: int) -> int:
        """Return a whole number that has a default and is not negative."""
        number = self.integer(option, default)
        if number is None or number < 0:
            raise WrongUsage(f"The value '{number}' is invalid for '--{option} <{option}>'")
        return number


def parse(words: Sequence[str], syntax: Syntax) -> Arguments:
    """Read the words after the command's name."""
    found = Arguments(syntax)
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            found.positionals += left
            break
        if word.startswith("-") and word != "-":
            _read_option(found, word, left)
            continue
        found.positionals.append(word)
        if syntax.takes_rest and len(found.positionals) == len(syntax.positionals) - 1:
            found.positionals += left
            break
    _check_count(found)
    return found


def _read_option(found: Arguments, word: str, left: list[str]) -> None:
    name, has_value, value = word.lstrip("-").partition("=")
    if not word.startswith("--"):
        name = dict(found.syntax.short).get(name, "")
    if name in found.syntax.flags and not has_value:
        found.present.add(name)
    elif name in found.syntax.options:
        if not has_value:
            value = _next(word, left)
        found.values.setdefault(name, []).append(value)
    else:
        raise WrongUsage(f"Unknown option '{word.partition('=')[0]}'")


def _next(word: str, left: list[str]) -> str:
    if not left or (left[0].startswith("-") and left[0] != "-"):
        raise WrongUsage(f"Missing value for '{word} <{word.lstrip('-')}>'")
    return left.pop(0)


def _check_count(found: Arguments) -> None:
    expected, given = found.syntax.positionals, found.positionals
    if len(given) < len(expected):
        raise WrongUsage(f"Missing expected argument '<{expected[len(given)]}>'")
    if len(given) > len(expected) and not (found.syntax.repeats_last or found.syntax.takes_rest):
        raise WrongUsage(f"Unexpected argument '{given[len(expected)]}'")
