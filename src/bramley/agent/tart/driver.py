"""The `tart` command as a typed object: every call has a deadline, missed deadlines are counted, and errors are classified.

Whether a VM exists or runs, and which digest a tag refers to, is read from the disk, which starts no process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from prometheus_client import Counter, Histogram

from bramley.agent import programs
from bramley.agent.host import Host
from bramley.agent.metrics import CANCELLED, DONE, FAILED
from bramley.agent.programs import ProgramResult, Programs
from bramley.agent.runs import Run, Runs
from bramley.agent.shared_lock import SharedLock
from bramley.agent.tart import failures, output, references
from bramley.agent.tart.output import ListedVm, VmFacts
from bramley.agent.tart.removals import Removals
from bramley.base import errors, log
from bramley.base.metrics import Labelled
from bramley.base.secret import Secret

logger = log.get(__name__)

# tart locks this file while the VM runs.
_CONFIG = "config.json"
_SAVED_STATE = "state.vzvmsave"
# `tart clone` reads the configurations of all VMs, and fails if one of them is changed or deleted meanwhile. So `set` and `delete` wait
# for clones, and clones for them; clones run concurrently. No command waits longer than this, and a command that takes longer loses
# the lock, so that one that hangs delays other VMs only once. A clone that fails because of a concurrent change is repeated.
LOCK_TIMEOUT = timedelta(seconds=2)
# A guest's disk boots once, so a crash of the host loses nothing that is needed again; cached reads are twice as fast.
EPHEMERAL_DISK_OPTIONS = "sync=none,caching=cached"


@dataclass(frozen=True, slots=True)
class Share:
    """A folder of the host that is mounted in the guest under a name."""

    name: str
    path: Path
    is_read_only: bool = False

    def argument(self) -> str:
        """Return the value of `--dir`, which accepts `:ro` and rejects `:rw`."""
        return f"{self.name}:{self.path}{':ro' if self.is_read_only else ''}"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of `tart run`."""

    shares: Sequence[Share] = ()
    root_disk: str = EPHEMERAL_DISK_OPTIONS


def tart_environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of every tart: its home, and the setting that keeps it from pruning images."""
    return {"TART_HOME": str(home), "TART_NO_AUTO_PRUNE": "1", **(extra or {})}


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The deadline of each command; `stop_margin` and `ip_margin` are added to the wait that is passed to tart."""

    pull: timedelta = timedelta(minutes=20)
    # A clone on one APFS volume takes a second, however large the disk is.
    clone: timedelta = timedelta(minutes=1)
    set: timedelta = timedelta(minutes=1)
    # Freeing the blocks of a large disk with snapshots takes minutes. A deletion that hangs can be killed and repeated.
    delete: timedelta = timedelta(minutes=5)
    get: timedelta = timedelta(seconds=30)
    list: timedelta = timedelta(seconds=30)
    run: timedelta = timedelta(seconds=15)
    version: timedelta = timedelta(seconds=10)
    stop_margin: timedelta = timedelta(seconds=30)
    ip_margin: timedelta = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Registry credentials; passed to tart by environment, never by `tart login`."""

    host: str
    username: str
    password: Secret

    def environment(self) -> dict[str, str]:
        """Return the variables that take precedence over tart's other credential sources."""
        return {
            "TART_REGISTRY_HOSTNAME": self.host,
            "TART_REGISTRY_USERNAME": self.username,
            "TART_REGISTRY_PASSWORD": self.password.reveal(),
        }


class Metrics(Protocol):
    """The metrics of the driver."""

    @property
    def tart_timeouts(self) -> Labelled[Counter]:
        """Return the counter of missed deadlines, by operation."""
        ...

    @property
    def clone_duration(self) -> Labelled[Histogram]:
        """Return the histogram of the duration of clones, by result."""
        ...


class Tart:
    """Runs one tart binary with one TART_HOME.

    Errors: TartFailed and its subclasses, errors.TimedOut after the command was killed, ProgramMissing.
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
        self._lock = SharedLock()
        self._cloning: set[str] = set()
        self.home = home
        self.deadlines = deadlines or Deadlines()
        self.removals = Removals(programs, home, limit=self.deadlines.delete)

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
        """Pull an image into the cache; returns at once if it is cached. A paced pull passes its own `limit`."""
        options = ("--concurrency", str(concurrency)) if concurrency else ()
        # With CI set tart prints its progress in lines.
        environment = {"CI": "1", **(credentials.environment() if credentials else {})}
        finished = await self._run(
            "pull",
            (image, *options),
            limit=limit or self.deadlines.pull,
            environment=environment,
            on_line=on_line,
            gate=gate,
        )
        _check_exit("pull", finished)

    async def clone(self, source: str, name: str) -> None:
        """Clone a VM from another one or from a cached image; AlreadyExists if the name is taken."""
        try:
            await self._clone(source, name)
        except failures.Disturbed as error:
            if self._bundle(name).exists():
                raise
            logger.info("Retrying tart clone", vm=name, error=str(error))
            await self._clone(source, name)
        # A clone boots and gets its own identity, and only the hardware that saved a state can restore it.
        if self.is_suspended(name):
            logger.warning("Removing saved state of clone", vm=name, source=source)
            self.removals.remove(self._bundle(name) / _SAVED_STATE)

    async def set(
        self,
        vm: str,
        *,
        cpu: int | None = None,
        memory_mb: int | None = None,
        random_mac: bool = False,
        random_serial: bool = False,
    ) -> None:
        """Set size and identity of a VM in one call; without changes tart is not called."""
        changes = (
            *(("--cpu", str(cpu)) if cpu else ()),
            *(("--memory", str(memory_mb)) if memory_mb else ()),
            *(("--random-mac",) if random_mac else ()),
            *(("--random-serial",) if random_serial else ()),
        )
        if not changes:
            return
        async with self._locked(shared=False):
            finished = await self._run("set", (vm, *changes), limit=self.deadlines.set)
        _check_exit("set", finished)

    async def stop(self, vm: str, grace: timedelta) -> None:
        """Power a VM off, by force after the grace period; succeeds if it does not run or does not exist."""
        seconds = max(0, round(grace.total_seconds()))
        limit = max(timedelta(minutes=2), grace + self.deadlines.stop_margin)
        finished = await self._run("stop", (vm, "--timeout", str(seconds)), limit=limit)
        if not (failures.is_not_running(finished) or failures.is_missing(finished)):
            _check_exit("stop", finished)

    async def delete(self, name: str) -> None:
        """Delete a VM or a cached image; succeeds if it does not exist. A folder too incomplete for tart is removed directly."""
        try:
            async with self._locked(shared=False):
                finished = await self._run("delete", (name,), limit=self.deadlines.delete)
            # tart may report an incomplete VM as missing, too.
            if not failures.is_missing(finished):
                _check_exit("delete", finished)
                return
        except (failures.IncompleteVm, errors.TimedOut) as error:
            # A deletion that was killed may have removed some files: then tart does not find the rest any more.
            if references.incomplete_folder(self.home, name) is None:
                raise
            logger.warning("Removing incomplete folder", name=name, error=str(error))
        if (left := references.incomplete_folder(self.home, name)) is not None:
            self.removals.remove(left)

    async def get(self, vm: str) -> VmFacts | None:
        """Return the facts of a local VM, or None if it does not exist."""
        finished = await self._run("get", (vm, "--format", "json"), limit=self.deadlines.get)
        if failures.is_missing(finished):
            return None
        _check_exit("get", finished)
        return output.parse_get(finished.stdout)

    async def list(self) -> Sequence[ListedVm]:
        """Return local VMs and cached images; retried once, because tart fails if a VM is deleted meanwhile."""
        try:
            return await self._list()
        except failures.TartFailed as error:
            logger.info("Retrying tart list", error=str(error))
            return await self._list()

    async def ip(self, vm: str, wait: timedelta) -> str | None:
        """Return the VM's address, or None if it has none in time; tart may still return the old address of a stopped VM."""
        seconds = max(0, round(wait.total_seconds()))
        limit = wait + self.deadlines.ip_margin
        finished = await self._run("ip", (vm, "--wait", str(seconds)), limit=limit)
        if "no IP address found" in finished.stderr or failures.is_missing(finished):
            return None
        _check_exit("ip", finished)
        return output.parse_ip(finished.stdout)

    async def exec(self, vm: str, argv: Sequence[str], limit: timedelta) -> ProgramResult:
        """Run a command in the guest. The exit code is the guest's or tart's; the two cannot always be distinguished."""
        return await self._run("exec", (vm, *argv), limit=limit)

    async def version(self) -> str:
        """Return tart's version; the cheapest check that tart can be run."""
        finished = await self._run("version", (), limit=self.deadlines.version)
        _check_exit("version", finished)
        return finished.stdout.strip()

    async def start(self, runs: Runs, vm: str, options: RunOptions | None = None) -> None:
        """Start a VM under a supervisor; AlreadyExists if it was started before."""
        argv, environment = self.run_argv(vm, options)
        try:
            async with asyncio.timeout(self.deadlines.run.total_seconds()):
                await runs.start(Run(vm, argv, environment))
        except (TimeoutError, errors.TimedOut) as error:
            self._metrics.tart_timeouts.of("run").inc()
            raise errors.TimedOut(f"the run of {vm} did not start in time") from error

    def run_argv(
        self, vm: str, options: RunOptions | None = None
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the command line and the environment of `tart run`, for a supervisor to start."""
        options = options or RunOptions()
        shares = [word for share in options.shares for word in ("--dir", share.argument())]
        disk = ("--root-disk-opts", options.root_disk)
        argv = (self._binary, "run", vm, "--no-graphics", *disk, *shares)
        return argv, tart_environment(self.home)

    def resolve(self, image: str) -> str | None:
        """Return the digest of a cached image, or None if it is not cached."""
        reference = references.parse(image)
        if reference is None:
            return None
        path = references.folder(self.home, reference, reference.digest or reference.tag)
        # Tags are links to digests.
        digest = reference.digest or path.resolve().name
        is_complete = (path / _CONFIG).exists()
        return digest if digest.startswith("sha256:") and is_complete else None

    def has_vm(self, vm: str) -> bool:
        """Return whether there is a complete VM of this name."""
        return references.is_bundle(self._bundle(vm))

    def is_suspended(self, vm: str) -> bool:
        """Return whether a VM would restore a saved state instead of booting."""
        return (self._bundle(vm) / _SAVED_STATE).exists()

    def is_running(self, vm: str, host: Host) -> bool:
        """Return whether a process runs the VM, by the lock that tart holds; True if the lock cannot be read."""
        try:
            return host.is_locked(self._bundle(vm) / _CONFIG)
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def is_linux(self, vm: str, home: str = "") -> bool:
        """Return whether the guest of a VM in tart's folder, or in another one, is Linux; False if that is unknown."""
        # The name may come from the command line of any process, so it need not be valid.
        folder = Path(home) if home else self.home
        return _is_name(vm) and references.is_linux(folder / "vms" / vm)

    async def _list(self) -> Sequence[ListedVm]:
        finished = await self._run("list", ("--format", "json"), limit=self.deadlines.list)
        _check_exit("list", finished)
        return output.parse_list(finished.stdout)

    async def _run(
        self,
        operation: str,
        arguments: Sequence[str],
        *,
        limit: timedelta,
        environment: dict[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
        gate: asyncio.Event | None = None,
    ) -> ProgramResult:
        verb = "--version" if operation == "version" else operation
        try:
            return await programs.run_with_timeout(
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

    async def _clone(self, source: str, name: str) -> None:
        loop, result = asyncio.get_running_loop(), CANCELLED
        async with self._locked(shared=True):
            # Checked here, under the lock: tart itself would silently replace a VM of that name, even a running one.
            if self._bundle(name).exists() or name in self._cloning:
                raise errors.AlreadyExists(f"VM {name} already exists")
            self._cloning.add(name)
            began = loop.time()
            try:
                finished = await self._run("clone", (source, name), limit=self.deadlines.clone)
                result = DONE if finished.code == 0 else FAILED
            except errors.TimedOut:
                result = FAILED
                raise
            finally:
                self._cloning.discard(name)
                self._metrics.clone_duration.of(result).observe(loop.time() - began)
        _check_exit("clone", finished)

    @contextlib.asynccontextmanager
    async def _locked(self, *, shared: bool) -> AsyncIterator[None]:
        is_locked = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOCK_TIMEOUT.total_seconds()):
                await self._lock.acquire(shared=shared)
                is_locked = True

        def release() -> None:
            # Called by the timer and at the end; only the first call may release, the lock may have a new owner.
            nonlocal is_locked
            if is_locked:
                self._lock.release(shared=shared)
            is_locked = False

        timer = asyncio.get_running_loop().call_later(LOCK_TIMEOUT.total_seconds(), release)
        try:
            yield
        finally:
            timer.cancel()
            release()

    def _bundle(self, vm: str) -> Path:
        if not _is_name(vm):
            raise ValueError(f"{vm!r} is not a valid VM name")
        return self.home / "vms" / vm


def _is_name(vm: str) -> bool:
    return bool(vm) and "/" not in vm and not vm.startswith(".")


def _check_exit(operation: str, finished: ProgramResult) -> None:
    if finished.code != 0:
        raise failures.failure(operation, finished)
