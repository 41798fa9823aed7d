"""Shows the progress of a long job: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PROGRESS_INTERVAL_SECONDS = 30.0


def to_stderr(line: str) -> None:
    """Print a line to stderr, apart from the command's output."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Progress:
    """Reports steps, one after the other."""

    write: Callable[[str], None] = to_stderr
    terminal: bool = field(default_factory=sys.stderr.isatty)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show that this step runs, for how long, and when it is done."""
        began = time.monotonic()
        with self.live(title) if self.terminal else self.plain(title, began):
            yield
        self.write(f"{title}: done in {time.monotonic() - began:.0f} s")

    @contextmanager
    def live(self, title: str) -> Iterator[None]:
        """Draw a spinner with the elapsed time."""
        from rich.console import Console
        from rich.progress import Progress as LiveLine
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with LiveLine(*columns, console=Console(stderr=True), transient=True) as line:
            line.add_task(title, total=None)
            yield

    @contextmanager
    def plain(self, title: str, began: float) -> Iterator[None]:
        """Print a line at the start and one every half minute, so that a log shows the progress."""
        finished = threading.Event()

        def print_periodically() -> None:
            while not finished.wait(PROGRESS_INTERVAL_SECONDS):
                self.write(f"{title}: {time.monotonic() - began:.0f} s so far")

        self.write(f"{title} …")
        printer = threading.Thread(target=print_periodically, daemon=True)
        printer.start()
        try:
            yield
        finally:
            finished.set()
            printer.join()
