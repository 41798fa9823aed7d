"""A Mac whose secrets are canaries, its steps, and the captured output of its bootstrap."""

from __future__ import annotations

import io
import logging
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bramley.base import log
from bramley.base.secret import Secret
from bramley.host import sequence
from bramley.host.progress import Progress
from bramley.host.spec import MacSpec, Tailnet
from bramley.host.step import Step
from bramley.sim.macos import state
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from tests import virtual_time
from tests.scenarios.host_secrets.canaries import Canaries
from tests.unit.host.steps import fixtures

READABLE_BY_OTHERS = 0o044


@dataclass
class Output:
    """The logs, progress events and errors of a manager."""

    log: io.StringIO = field(default_factory=io.StringIO)
    shown: list[str] = field(default_factory=list)

    def progress(self, event: Progress) -> None:
        self.shown += [repr(event), str(event)]

    def error(self, error: BaseException) -> None:
        """Add an error in every form in which it may be reported, with its causes."""
        self.shown += [str(error), repr(error), *traceback.format_exception(error)]

    def texts(self) -> list[str]:
        return [self.log.getvalue(), *self.shown]


@contextmanager
def captured_output() -> Iterator[Output]:
    """Capture all log records, of our modules and of the libraries."""
    output, root = Output(), logging.getLogger()
    handler = logging.StreamHandler(output.log)
    handler.setFormatter(log.JsonLines())
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield output
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


def spec(folder: Path, canaries: Canaries, *, password: Secret | None = None) -> MacSpec:
    """Return the specification of a Mac with every part, whose secrets are canaries."""
    folder.mkdir(exist_ok=True)
    token = canaries.token.reveal()
    return fixtures.builder_spec(
        folder,
        password=password or canaries.password,
        kubeconfig=fixtures.agent_kubeconfig(signature=token),
        registry_credentials=canaries.registry_credentials,
        builder=fixtures.builder(folder, token=canaries.runner_token),
        tailnet=Tailnet(
            binaries=fixtures.tailscale(folder), auth_key=canaries.auth_key, tags=("tag:macs",)
        ),
    )


def steps(folder: Path, canaries: Canaries, *, password: Secret | None = None) -> list[Step]:
    clock = virtual_time.clock()
    return sequence.steps(spec(folder, canaries, password=password), clock=clock)


def bare(root: Path, canaries: Canaries) -> Mac:
    """Return a bare Mac."""
    settings = Settings(password=canaries.password.reveal(), xcode=True)
    return Mac.create(root, settings=settings, clock=virtual_time.clock())


def connection_to(mac: Mac) -> ModelConnection:
    return ModelConnection(mac, clock=virtual_time.clock())


def world_readable_files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files that other users may read, with their contents; without the state of the simulation."""
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
    """Return the secrets in world-readable files, of a Mac or of the manager."""
    return [
        f"{name} in {path}"
        for path, content in world_readable_files(root)
        for name in canaries.seen_in(content)
    ]
