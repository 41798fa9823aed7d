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
    """The arguments of one call; the last value of an option counts, `all_values` returns all."""

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

    def all_values(self, option: str) -> list[str]:
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

    def non_negative(self, option: str, default: int) -> int:
        """Return a whole number that has a default and is not negative."""
        number = self.integer(option, default)
        if number is None or number < 0:
            raise WrongUsage(f"The value '{number}' is invalid for '--{option} <{option}>'")
        return number


def parse(words: Sequence[str], syntax: Syntax) -> Arguments:
    """Read the words after the command's name."""
    arguments = Arguments(syntax)
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            arguments.positionals += rest
            break
        if word.startswith("-") and word != "-":
            _read_option(arguments, word, rest)
            continue
        arguments.positionals.append(word)
        if syntax.takes_rest and len(arguments.positionals) == len(syntax.positionals) - 1:
            arguments.positionals += rest
            break
    _check_count(arguments)
    return arguments


def _read_option(arguments: Arguments, word: str, rest: list[str]) -> None:
    name, has_value, value = word.lstrip("-").partition("=")
    if not word.startswith("--"):
        name = dict(arguments.syntax.short).get(name, "")
    if name in arguments.syntax.flags and not has_value:
        arguments.present.add(name)
    elif name in arguments.syntax.options:
        if not has_value:
            value = _next_value(word, rest)
        arguments.values.setdefault(name, []).append(value)
    else:
        raise WrongUsage(f"Unknown option '{word.partition('=')[0]}'")


def _next_value(word: str, rest: list[str]) -> str:
    if not rest or (rest[0].startswith("-") and rest[0] != "-"):
        raise WrongUsage(f"Missing value for '{word} <{word.lstrip('-')}>'")
    return rest.pop(0)


def _check_count(arguments: Arguments) -> None:
    syntax, actual = arguments.syntax, arguments.positionals
    expected = syntax.positionals
    if len(actual) < len(expected):
        raise WrongUsage(f"Missing expected argument '<{expected[len(actual)]}>'")
    if len(actual) > len(expected) and not (syntax.repeats_last or syntax.takes_rest):
        raise WrongUsage(f"Unexpected argument '{actual[len(expected)]}'")
