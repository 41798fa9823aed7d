"""Write docs/reference/cli.md from what the programs' own `--help` prints: `python -m tools.cli_reference`."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bramley.cli import main as bramley
from bramley.cli import tart_kubelet

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
START = """\
# Command line

<!-- Written by `python -m tools.cli_reference` from what `--help` prints; edit the help texts instead. -->

A flag overrides its environment variable, which overrides the default; `--show-settings` prints where each value comes from.
A failure is one line on standard error with the problem and the remedy; `--log-level debug` adds the traceback, and so does
`BRAMLEY_LOG_LEVEL=debug`, also where a command has no such flag.
"""


def page() -> str:
    """Return the whole page."""
    sections = [f"## {' '.join(call)}\n\n```text\n{text}```\n" for call, text in _helps()]
    return "\n".join([START, *sections])


def _helps() -> Iterator[tuple[Sequence[str], str]]:
    yield ("bramley",), _printed(bramley.run, ["--help"])
    program = bramley.command_line()
    for command in program.registered_commands:
        name = command.name or ""
        yield ("bramley", name), _printed(bramley.run, [name, "--help"])
    for group in program.registered_groups:
        inner = group.typer_instance
        name = (inner.info.name if inner else None) or group.name or ""
        yield ("bramley", name), _printed(bramley.run, [name, "--help"])
        for command in inner.registered_commands if inner else ():
            called = [name, command.name or ""]
            yield ("bramley", *called), _printed(bramley.run, [*called, "--help"])
    yield ("tart-kubelet",), _printed(tart_kubelet.run, ["--help"])
    yield ("tart-kubelet", "lease"), _printed(tart_kubelet.run, ["lease", "--help"])


def _printed(run: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        run(arguments)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
