"""Flags in groups: a dataclass per group, whose fields are flags; and the command that prints help by group.

A command with dozens of flags is a function of its groups; `grouped` gives it the parameters that typer needs.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

_OTHERS = "Options"


def option(name: str, help: str, metavar: str, **more: Any) -> Any:
    """Return an option with the environment variable that existing deployments may set."""
    variable = "CAPI_" + name.removeprefix("--").replace("-", "_").upper()
    return typer.Option(name, **{"help": help, "metavar": metavar, "envvar": variable} | more)


def number(name: str, help: str, metavar: str = "COUNT", **more: Any) -> Any:
    """Return an option without a variable, for a number of at least 0."""
    return option(name, help, metavar, **{"min": 0, "envvar": None} | more)


def ignored(name: str) -> Any:
    """Return an option without effect."""
    text = "Accepted for existing deployments; it has no effect."
    return option(name, text, "VALUE", show_default=False)


def grouped(groups: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the flags of groups, the fields of a named tuple, to a command that is called with such a tuple.

    The first line of a group's docstring is its title in the help.
    """
    kinds = get_type_hints(groups)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapper(call: typer.Context, **values: Any) -> None:
            command(call, groups(**{name: _filled(kind, values) for name, kind in kinds.items()}))

        parameters = [
            inspect.Parameter("call", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
            *(each for kind in kinds.values() for each in _parameters(kind)),
        ]
        wrapper.__annotations__ = {each.name: each.annotation for each in parameters}
        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return wrapper

    return decorate


def _filled(group: type[Any], values: Mapping[str, Any]) -> Any:
    return group(**{each.name: values[each.name] for each in dataclasses.fields(group)})


def _parameters(group: type[Any]) -> Iterator[inspect.Parameter]:
    title = (group.__doc__ or "").partition("\n")[0].rstrip(".")
    hints = get_type_hints(group, include_extras=True)
    for each in dataclasses.fields(group):
        hint = hints[each.name]
        # Commands share some options, so the group is that of a copy.
        info = copy.copy(hint.__metadata__[0])
        info.rich_help_panel = title
        default = [] if each.default is dataclasses.MISSING else each.default
        yield inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[hint.__origin__, info],
        )


class GroupedCommand(TyperCommand):
    """A command whose help shows flags by group, and whose switches also accept =true and =false, as Go's do."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line."""
        switches = {
            f"{name}={value}": chosen
            for each in self.params
            if getattr(each, "is_flag", False) and getattr(each, "secondary_opts", ())
            for name in each.opts
            for value, chosen in (("true", name), ("false", each.secondary_opts[0]))
        }
        return super().parse_args(ctx, [switches.get(each, each) for each in args])

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the flags of each group below its title."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None:
                title = getattr(each, "rich_help_panel", None) or _OTHERS
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)
