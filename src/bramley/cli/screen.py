"""What a person sees of `bramley up`: where the server is, each Mac as it comes up, and then what to try.

On a terminal it is coloured. Commands are never wrapped or indented: what is copied must run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from bramley.cli import terminal

if TYPE_CHECKING:
    from bramley.app.apiserver import Settings
    from bramley.app.listening import Address
    from bramley.app.up import News

# A text and its style; several of them make a line.
Part = tuple[str, str]
Steps = Iterable[tuple[str, str]]

GOOD, BAD, COMMAND, FAINT = "bold green", "bold red", "cyan", "dim"
STOP = "# Stop with Ctrl-C; the data stays and is there with the next start"


class Screen:
    """Tells one start; `steps` come when everything that can come up has done so."""

    def __init__(self, settings: Settings, *, macs: int, steps: Steps) -> None:
        self._settings = settings
        self._macs = macs
        self._steps = steps
        self._came_up = 0
        self._failed = 0
        self._print = _painter() if sys.stdout.isatty() else _plain

    def started(self, address: Address) -> None:
        """Tell where the server is."""
        settings = self._settings
        self._tell("Serving", f"the Kubernetes API at {address.url}")
        self._tell("Data", str(settings.data_dir))
        self._tell("Kubeconfig", f"{settings.kubeconfig} (holds the administrator's token)")
        if self._macs:
            is_one = self._macs == 1
            told = (
                "one is starting, with a real agent"
                if is_one
                else "ones are starting, with real agents"
            )
            self._tell("Macs", f"{self._macs} simulated {told}")
        else:
            self._tell_steps()

    def hear(self, news: News) -> None:
        """Tell how the start of a Mac went, and after the last one what to try."""
        from bramley.app.up import Failed, Stepped, Waiting

        if isinstance(news, Waiting):
            self._tell("Macs", news.what, FAINT)
            return
        if isinstance(news, Stepped):
            # A Mac that is switched on again has hardly anything to do, and sixteen steps.
            if news.changed:
                self._tell(news.name, f"{news.step}: {news.changed} done", FAINT)
            return
        if isinstance(news, Failed):
            self._failed += 1
            self._tell(news.name, f"did not come up: {news.why}", BAD)
        else:
            self._came_up += 1
            told = f"Ready after {news.after.total_seconds():.1f} s"
            self._tell(news.name, f"{told} ({self._came_up} of {self._macs})")
        if self._came_up + self._failed == self._macs:
            self._tell_steps()

    def _tell(self, name: str, value: str, style: str = GOOD) -> None:
        self._print((f"{name:<10}  ", style), (value, ""))

    def _tell_steps(self) -> None:
        for sentence, command in self._steps:
            self._print()
            self._print((f"# {sentence}", FAINT))
            self._print((command, COMMAND))
        self._print()
        self._print((STOP, FAINT))


def _plain(*parts: Part) -> None:
    typer.echo("".join(text for text, _ in parts))
    sys.stdout.flush()


def _painter() -> Callable[..., None]:
    from rich.text import Text

    console = terminal.console()

    def paint(*parts: Part) -> None:
        console.print(Text.assemble(*parts), soft_wrap=True)

    return paint
