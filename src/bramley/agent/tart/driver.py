"""The `tart` command as a typed object: every call has a deadline, is counted when it misses it, and fails by a known name.

What the disk tells is read from the disk: whether a VM exists, runs, or which digest a tag means. That costs no process, and
spares pulls that were cut short, whose remains any other call of tart sweeps away.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from prometheus_client import Counter

from bramley.agent import programs
from bramley.agent.host import Host
from bramley.agent.programs import Finished, Programs
from bramley.agent.runs import Run, Runs
from bramley.agent.tart import failures, output, references
from bramley.agent.tart.output import ListedVm, VmFacts
from bramley.base import errors, log
from bramley.base.metrics import Labelled
from bramley.base.secret import Secret

# A guest's disk boots once, so what a crash of the host would lose of it is lost anyway; cached reads are twice as fast.
THROW_AWAY_DISK = "sync=none,caching=cached"


@dataclass(frozen=True, slots=True)
class Share:
    """A folder of the host that the guest sees under a name."""

    name: str
    path: Path
    is_read_only: bool = False

    def spelt(self) -> str:
        """Return it as `--dir` reads it, which knows `:ro` and refuses `:rw`."""
        return f"{self.name}:{self.path}{':ro' if self.is_read_only else ''}"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a VM is to be run."""

    shares: Sequence[Share] = ()
    root_disk: str = THROW_AWAY_DISK


def run_arguments(binary: str, vm: str, options: RunOptions) -> tuple[str, ...]:
    """Return the command line."""
    shares = [part for share in options.shares for part in ("--dir", share.spelt())]
    return (binary, "run", vm, "--no-graphics", "--root-disk-opts", options.root_disk, *shares)


def tart_environment(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what every tart of ours has in its environment: its home, and the word not to delete images by itself."""
    return {"TART_HOME": str(home), "TART_NO_AUTO_PRUNE": "1", **(more or {})}


logger = log.get(__name__)

# Without these files tart neither lists nor runs a VM.
_BUNDLE = ("config.json", "disk.img", "nvram.bin")
# Commands that change VMs take turns, because tart reads all of them for each; but no turn is waited for longer than this,
# and whoever has it for longer loses it, so that a command that hangs holds up other VMs once and not again and again.
PATIENCE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long each command may take; `stop_margin` and `ip_margin` come on top of the wait that tart is asked for."""

    pull: timedelta = timedelta(minutes=20)
    clone: timedelta = timedelta(minutes=5)
    set: timedelta = timedelta(minutes=1)
    # Freeing the blocks of a disk takes seconds. One that hangs is begun anew; nothing is lost by cutting it off.
    delete: timedelta = timedelta(seconds=30)
    get: timedelta = timedelta(seconds=30)
    list: timedelta = timedelta(seconds=30)
    run: timedelta = timedelta(seconds=15)
    version: timedelta = timedelta(seconds=10)
    stop_margin: timedelta = timedelta(seconds=30)
    ip_margin: timedelta = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a registry wants to see; given to tart by environment, never by `tart login`."""

    host: str
    username: str
    password: Secret

    def environment(self) -> dict[str, str]:
        """Return the variables that tart reads before anything else."""
        return {
            "TART_REGISTRY_HOSTNAME": self.host,
            "TART_REGISTRY_USERNAME": self.username,
            "TART_REGISTRY_PASSWORD": self.password.reveal(),
        }


class Metrics(Protocol):
    """What the driver counts."""

    @property
    def tart_timeouts(self) -> Labelled[Counter]:
        """Return the counter of missed deadlines, by operation."""
        ...


class Tart:
    """Drives one tart with one home.

    Errors: TartFailed and its kinds, errors.TimedOut after the command was killed, ProgramMissing.
    """

    def __init__(
        self,
        programs: Programs,
        *,
        binary: str,
        home: Path,
        metrics: Metrics,
        deadlines: Deadlines | None = None,
    ) -> None:
        self._programs = programs
        self._binary = binary
        self._metrics = metrics
        self._turn = asyncio.Lock()
        self.home = home
        self.deadlines = deadlines or Deadlines()

    async def pull(
        self,
        image: str,
        *,
        credentials: Credentials | None = None,
        concurrency: int | None = None,
        on_line: Callable[[str], None] | None = None,
        gate: asyncio.Event | None = None,
        limit: timedelta | None = None,
    ) -> None:
        """Bring an image into the cache; done at once if it is there. A paced pull has a `limit` of its own."""
        more = ("--concurrency", str(concurrency)) if concurrency else ()
        # Only so does tart tell its progress in lines.
        environment = {"CI": "1", **(credentials.environment() if credentials else {})}
        said = await self._run(
            "pull",
            (image, *more),
            limit=limit or self.deadlines.pull,
            environment=environment,
            on_line=on_line,
            gate=gate,
        )
        _expect_well("pull", said)

    async def clone(self, source: str, name: str) -> None:
        """Make a VM out of another one, or out of an image that is cached; AlreadyExists if the name is taken."""
        async with self._taking_turns():
            # tart itself would replace the VM of that name without a word, even a running one.
            if self._bundle(name).exists():
                raise errors.AlreadyExists(f"there is a VM {name}")
            said = await self._run("clone", (source, name), limit=self.deadlines.clone)
        _expect_well("clone", said)

    async def set(
        self,
        vm: str,
        *,
        cpu: int | None = None,
        memory_mb: int | None = None,
        random_mac: bool = False,
        random_serial: bool = False,
    ) -> None:
        """Give a VM its size and an identity of its own, in one call; nothing is called when nothing is wanted."""
        wanted = (
            *(("--cpu", str(cpu)) if cpu else ()),
            *(("--memory", str(memory_mb)) if memory_mb else ()),
            *(("--random-mac",) if random_mac else ()),
            *(("--random-serial",) if random_serial else ()),
        )
        if not wanted:
            return
        async with self._taking_turns():
            said = await self._run("set", (vm, *wanted), limit=self.deadlines.set)
        _expect_well("set", said)

    async def stop(self, vm: str, grace: timedelta) -> None:
        """Power a VM off, by force when the grace is over; done if it does not run or is not there."""
        seconds = max(0, round(grace.total_seconds()))
        limit = max(timedelta(minutes=2), grace + self.deadlines.stop_margin)
        said = await self._run("stop", (vm, "--timeout", str(seconds)), limit=limit)
        if not (failures.says_not_running(said) or failures.says_missing(said)):
            _expect_well("stop", said)

    async def delete(self, name: str) -> None:
        """Delete a VM or a cached image; done if it is not there. What tart cannot delete because it is half made, we do."""
        async with self._taking_turns():
            said = await self._run("delete", (name,), limit=self.deadlines.delete)
        if failures.says_missing(said):
            self._remove_remains(name)
            return
        try:
            _expect_well("delete", said)
        except failures.HalfMade:
            self._remove_remains(name)

    async def get(self, vm: str) -> VmFacts | None:
        """Return the facts of a local VM, or None if there is none."""
        said = await self._run("get", (vm, "--format", "json"), limit=self.deadlines.get)
        if failures.says_missing(said):
            return None
        _expect_well("get", said)
        return output.facts(said.stdout)

    async def list(self) -> Sequence[ListedVm]:
        """Return local VMs and cached images; tried twice, because a deletion at the same moment makes tart fail."""
        try:
            return await self._list()
        except failures.TartFailed as error:
            logger.info("Listing once more", error=str(error))
            return await self._list()

    async def ip(self, vm: str, wait: timedelta) -> str | None:
        """Return the VM's address, or None if it has none in time; a stopped VM may still be told by its old one."""
        seconds = max(0, round(wait.total_seconds()))
        limit = wait + self.deadlines.ip_margin
        said = await self._run("ip", (vm, "--wait", str(seconds)), limit=limit)
        if "no IP address found" in said.stderr or failures.says_missing(said):
            return None
        _expect_well("ip", said)
        return output.address(said.stdout)

    async def exec(self, vm: str, argv: Sequence[str], limit: timedelta) -> Finished:
        """Run a command in the guest; its code is the guest's own, or tart's, and cannot always be told apart."""
        return await self._run("exec", (vm, *argv), limit=limit)

    async def version(self) -> str:
        """Return tart's version: the cheapest sign that it can be run at all."""
        said = await self._run("version", (), limit=self.deadlines.version)
        _expect_well("version", said)
        return said.stdout.strip()

    async def start(self, runs: Runs, vm: str, options: RunOptions | None = None) -> None:
        """Begin to run a VM under a supervisor; AlreadyExists if it was begun before."""
        argv, environment = self.run_argv(vm, options)
        try:
            async with asyncio.timeout(self.deadlines.run.total_seconds()):
                await runs.start(Run(vm, argv, environment))
        except (TimeoutError, errors.TimedOut) as error:
            self._metrics.tart_timeouts.of("run").inc()
            raise errors.TimedOut(f"the run of {vm} did not begin in time") from error

    def run_argv(
        self, vm: str, options: RunOptions | None = None
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the command line and the environment of `tart run`, for a supervisor to start."""
        argv = run_arguments(self._binary, vm, options or RunOptions())
        return argv, tart_environment(self.home)

    def resolve(self, image: str) -> str | None:
        """Return the digest that an image's name means in the cache, or None if it is not there."""
        reference = references.parse(image)
        if reference is None:
            return None
        at = references.folder(self.home, reference, reference.digest or reference.tag)
        # Tags are links to digests.
        digest = reference.digest or at.resolve().name
        whole = at / _BUNDLE[0]
        return digest if digest.startswith("sha256:") and whole.exists() else None

    def has(self, vm: str) -> bool:
        """Tell whether there is a whole VM of this name."""
        return all((self._bundle(vm) / name).exists() for name in _BUNDLE)

    def is_running(self, vm: str, host: Host) -> bool:
        """Tell whether somebody runs the VM, by the lock that tart holds; where that cannot be told, somebody does."""
        try:
            return host.lock_holder(self._bundle(vm) / _BUNDLE[0]) is not None
        except FileNotFoundError:
            return False
        except OSError:
            return True

    async def _list(self) -> Sequence[ListedVm]:
        said = await self._run("list", ("--format", "json"), limit=self.deadlines.list)
        _expect_well("list", said)
        return output.listed(said.stdout)

    async def _run(
        self,
        operation: str,
        arguments: Sequence[str],
        *,
        limit: timedelta,
        environment: dict[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
        gate: asyncio.Event | None = None,
    ) -> Finished:
        verb = "--version" if operation == "version" else operation
        try:
            return await programs.within(
                limit,
                self._programs,
                (self._binary, verb, *arguments),
                environment=tart_environment(self.home, environment),
                on_line=on_line,
                gate=gate,
            )
        except errors.TimedOut:
            self._metrics.tart_timeouts.of(operation).inc()
            raise

    @contextlib.asynccontextmanager
    async def _taking_turns(self) -> AsyncIterator[None]:
        has_turn = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE.total_seconds()):
                has_turn = await self._turn.acquire()

        def give_up() -> None:
            nonlocal has_turn
            if has_turn:
                self._turn.release()
            has_turn = False

        overdue = asyncio.get_running_loop().call_later(PATIENCE.total_seconds(), give_up)
        try:
            yield
        finally:
            overdue.cancel()
            give_up()

    def _bundle(self, vm: str) -> Path:
        if not vm or "/" in vm or vm.startswith("."):
            raise ValueError(f"no VM can be called {vm!r}")
        return self.home / "vms" / vm

    def _remove_remains(self, name: str) -> None:
        """Remove a folder that tart does not take for a VM."""
        if "/" not in name and not self.has(name):
            shutil.rmtree(self._bundle(name), ignore_errors=True)


def _expect_well(operation: str, said: Finished) -> None:
    if said.code != 0:
        raise failures.failure(operation, said)
