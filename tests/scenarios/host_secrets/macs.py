"""A Mac whose every secret is a canary, the whole bootstrap of it, and all that a bootstrap lets out while it goes."""

from __future__ import annotations

import io
import logging
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bramley.base import log, virtual_time
from bramley.base.secret import Secret
from bramley.host import sequence
from bramley.host.converge import Progress
from bramley.host.spec import MacSpec, Tailnet
from bramley.host.step import Step
from bramley.sim.macos import state
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from tests.scenarios.host_secrets.canaries import Canaries
from tests.unit.host.steps import wanted

READABLE_BY_OTHERS = 0o044


@dataclass
class Heard:
    """What somebody can read who sees the logs, the progress, the screen and the errors of a manager."""

    log: io.StringIO = field(default_factory=io.StringIO)
    told: list[str] = field(default_factory=list)

    def progress(self, news: Progress) -> None:
        self.told += [repr(news), str(news)]

    def error(self, error: BaseException) -> None:
        """Take an error in every form that a report may have it, with those behind it."""
        self.told += [str(error), repr(error), *traceback.format_exception(error)]

    def everything(self) -> list[str]:
        return [self.log.getvalue(), *self.told]


@contextmanager
def listening() -> Iterator[Heard]:
    """Hear every log line down to the finest level, of our own and of the libraries."""
    heard, root = Heard(), logging.getLogger()
    handler = logging.StreamHandler(heard.log)
    handler.setFormatter(log.JsonLines())
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield heard
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


def spec(folder: Path, canaries: Canaries, *, password: Secret | None = None) -> MacSpec:
    """Return a Mac with everything that may be had, whose secrets are canaries."""
    folder.mkdir(exist_ok=True)
    token = canaries.token.reveal()
    return wanted.spec(
        folder,
        password=password or canaries.password,
        kubeconfig=wanted.identity(signature=token),
        tailnet=Tailnet(
            binaries=wanted.tailscale(folder), auth_key=canaries.auth_key, tags=("tag:macs",)
        ),
    )


def steps(folder: Path, canaries: Canaries, *, password: Secret | None = None) -> list[Step]:
    clock = virtual_time.clock()
    return sequence.steps(spec(folder, canaries, password=password), clock=clock)


def bare(root: Path, canaries: Canaries) -> Mac:
    """Return a Mac that nobody has touched."""
    settings = Settings(password=canaries.password.reveal())
    return Mac.make(root, settings=settings, clock=virtual_time.clock())


def line_to(mac: Mac) -> ModelConnection:
    return ModelConnection(mac, clock=virtual_time.clock())


def open_to_others(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files that others may read, with what they hold; not what a simulated Mac itself is made of."""
    for folder, names, files in os.walk(root):
        if state.FOLDER in names:
            names.remove(state.FOLDER)
        for path in (Path(folder, name) for name in files):
            if (
                path.is_file()
                and not path.is_symlink()
                and path.stat().st_mode & READABLE_BY_OTHERS
            ):
                yield str(path.relative_to(root)), path.read_bytes()


def leaks_of(root: Path, canaries: Canaries) -> list[str]:
    """Return which secrets lie open where, on a Mac or on the manager's disk."""
    return [
        f"{name} in {path}"
        for path, content in open_to_others(root)
        for name in canaries.seen_in(content)
    ]
