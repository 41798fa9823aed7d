"""Check the agent's host side on a real Mac: what no test on Linux can prove, one line for each fact.

`python -m tools.acceptance` only queries the system. With `--image REF` it also pulls that image into a separate TART_HOME,
boots one VM of it under the agent's supervisor, stops it and deletes it; no other VM is touched.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from prometheus_client import CollectorRegistry

from bramley.agent import platform
from bramley.agent.metrics import AgentMetrics
from bramley.agent.platform import System, fd_events
from bramley.agent.processes import SystemPrograms
from bramley.agent.runs import Run
from bramley.agent.supervised_runs import SupervisedRuns
from bramley.agent.tart.driver import Tart
from bramley.base import errors
from bramley.base.clock import SystemClock

VM = "bramley-acceptance"
BOOT = timedelta(minutes=3)
TIMEOUT_SECONDS = 120.0  # these operations take less than a second on an idle machine
IS_MAC = sys.platform == "darwin"
_HOLD = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"


@dataclass
class Scene:
    """The host, programs and runs that the checks use."""

    folder: Path
    host: System
    tart: Tart
    runs: SupervisedRuns
    image: str
    failed: list[str] = field(default_factory=list)


class CheckFailed(Exception):
    """A check failed."""


Check = Callable[[Scene], Awaitable[str]]


def expect(holds: object, message: str) -> None:
    """Fail the check unless the condition holds."""
    if not holds:
        raise CheckFailed(message)


def output_of(*argv: str) -> str:
    """Return what a program of the system prints in the C locale and UTC."""
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC0"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


async def boot_has_an_id(scene: Scene) -> str:
    """Compare the id of this boot with sysctl's."""
    actual = scene.host.boot_id()
    expect(actual and actual == scene.host.boot_id(), f"got {actual!r} and then another id")
    if IS_MAC:
        session = output_of("sysctl", "-n", "kern.bootsessionuuid")
        expect(actual == session, f"got {actual}, and sysctl {session}")
    return actual


async def system_is_identified(scene: Scene) -> str:
    """Compare version, build and UUID of this system with those of the programs that print them."""
    actual = scene.host.system_info()
    expect(actual.kernel_version == output_of("uname", "-r"), f"got {actual.kernel_version}")
    if IS_MAC:
        version, build = (
            output_of("sw_vers", "-productVersion"),
            output_of("sw_vers", "-buildVersion"),
        )
        expect(actual.os_image == f"macOS {version} ({build})", f"got {actual.os_image}")
        registry = output_of("ioreg", "-rd1", "-c", "IOPlatformExpertDevice")
        expect(actual.system_uuid and actual.system_uuid in registry, f"got {actual.system_uuid}")
    return f"{actual.os_image}, {actual.system_uuid}"


async def starts_of_processes_agree(scene: Scene) -> str:
    """Compare the start time of this process with the one that the supervisor records."""
    began = scene.host.start_time(os.getpid())
    expect(began, "our own start is unknown")
    if IS_MAC:
        noted = output_of("ps", "-o", "lstart=", "-p", str(os.getpid()))
        expect(noted.split() == str(began).split(), f"got {began!r}, and ps {noted!r}")
    expect(scene.host.is_same_process(os.getpid(), str(began)), "we are not taken for ourselves")
    return str(began)


@contextlib.contextmanager
def held(path: Path) -> Iterator[int]:
    """Hold the POSIX lock of a file in another process."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        if holder.stdout is not None:
            holder.stdout.readline()
        yield holder.pid
        holder.kill()


async def holders_of_locks_are_seen(scene: Scene) -> str:
    """Query the holder of a lock, which is how a running VM is detected."""
    path = scene.folder / "locked"
    path.write_text("{}")
    expect(not scene.host.is_locked(path), "a free file is locked")
    with held(path) as pid:
        holder = scene.host.lock_holder(path)
        expect(holder == pid, f"got {holder}, and {pid} holds it")
        expect(scene.host.is_locked(path), "a locked file is free")
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # macOS has one list for both kinds of locks, and reports an flock with the pid -1; Linux does not report it.
        expect(scene.host.is_locked(path) == IS_MAC, "an flock is not reported as the system does")
        expect(scene.host.lock_holder(path) is None, "an flock has a holder")
    return f"pid {pid}"


async def processes_are_listed(scene: Scene) -> str:
    """Find this process and its arguments in the process table."""
    argv_by_pid = {each.pid: each.argv for each in scene.host.processes()}
    expect(os.getpid() in argv_by_pid, "this process is not in the process table")
    expect(
        any("acceptance" in word for word in argv_by_pid[os.getpid()]),
        f"{argv_by_pid[os.getpid()]}",
    )
    return f"{len(argv_by_pid)} processes"


async def cpu_time_is_in_seconds(scene: Scene) -> str:
    """Compare the processor time of this process with Python's."""
    until = time.process_time() + 0.5
    while time.process_time() < until:
        pass
    usage = scene.host.usage(os.getpid())
    expected = time.process_time()
    expect(usage, "no usage was reported")
    actual = usage.cpu.total_seconds() if usage else 0.0
    expect(abs(actual - expected) < 0.3, f"got {actual:.2f} s, and it is {expected:.2f} s")
    return f"{actual:.2f} s, {usage.resident_bytes // 2**20 if usage else 0} MiB"


async def address_is_ours(scene: Scene) -> str:
    """Find the reported address among those of the interfaces."""
    actual = scene.host.address()
    if IS_MAC:
        expect(
            actual and f"inet {actual} " in output_of("ifconfig", "-a"),
            f"{actual} is not an address of this host",
        )
    return str(actual)


async def disk_space_equals_df(scene: Scene) -> str:
    """Compare the size of the volume with df's."""
    actual = scene.host.space(scene.folder)
    blocks = int(output_of("df", "-Pk", str(scene.folder)).splitlines()[-1].split()[-5])
    expect(abs(actual.total - blocks * 1024) < 2**20, f"got {actual.total}, and df {blocks * 1024}")
    return f"{actual.free // 10**9} of {actual.total // 10**9} GB free"


async def exits_are_noticed_at_once(_: Scene) -> str:
    """Wait for a process that is not a child of this one."""
    # A busy machine may be late once, but not each time.
    waited = 0.0
    for _again in range(10):
        pid = int(output_of("/bin/sh", "-c", "sleep 0.5 >/dev/null 2>&1 & echo $!"))
        began = time.monotonic()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await fd_events.wait_for_exit(pid)
        waited = time.monotonic() - began
        if waited < 0.8:
            return f"{waited:.2f} s"
    raise CheckFailed(f"noticed after {waited:.2f} s the exit of a process that ran for 0.5 s")


async def runs_are_supervised(scene: Scene) -> str:
    """Run a small program under a supervisor, as if the agent were replaced meanwhile."""
    end = scene.folder / "acceptance-end"
    end.unlink(missing_ok=True)
    waiting = 'while [ ! -e "$0" ]; do sleep 0.1; done; exit 3'
    await scene.runs.start(Run("acceptance-run", ["/bin/sh", "-c", waiting, str(end)]))
    expect(scene.runs.is_alive("acceptance-run"), "it is not known to live")
    end.touch()
    ended = await asyncio.wait_for(scene.runs.wait("acceptance-run"), timeout=TIMEOUT_SECONDS)
    end.unlink()
    expect(ended.code == 3, f"it ended with {ended.code}")
    scene.runs.forget("acceptance-run")
    return "code 3"


async def session_is_there(_: Scene) -> str:
    """Find the GUI session, without which no VM starts."""
    if not IS_MAC:
        return "not checked: this is not a Mac"
    actual = output_of("launchctl", "print", f"gui/{os.getuid()}")
    expect("session = Aqua" in actual, "no user is logged in at the console")
    return "session = Aqua"


async def tart_answers(scene: Scene) -> str:
    """Query tart's version, its list, and a VM that does not exist."""
    version = await scene.tart.version()
    expect(await scene.tart.get("no-such-vm") is None, "a missing VM is not known as missing")
    await scene.tart.delete("no-such-vm")
    return f"{version}, {len(await scene.tart.list())} listed"


async def image_is_pulled(scene: Scene) -> str:
    """Pull the image and resolve its digest from the disk."""
    lines: list[str] = []
    await scene.tart.pull(scene.image, on_line=lines.append, limit=timedelta(hours=2))
    digest = scene.tart.resolve(scene.image)
    expect(digest, "the digest is not found in the cache")
    return f"{digest}, {sum('%' in line for line in lines)} lines of progress"


async def clone_has_its_size(scene: Scene) -> str:
    """Clone a VM, give it an identity and a size, and read them back."""
    began = time.monotonic()
    await scene.tart.clone(scene.image, VM)
    took = time.monotonic() - began
    before = await scene.tart.get(VM)
    expect(before and scene.tart.has_vm(VM), "the clone is not there")
    cpu = before.cpu if before else 0
    await scene.tart.set(VM, cpu=cpu + 1, random_mac=True, random_serial=True)
    after = await scene.tart.get(VM)
    expect(after and after.cpu == cpu + 1, f"the size is {after}")
    return f"cloned in {took:.1f} s"


async def vm_boots(scene: Scene) -> str:
    """Run the VM under a supervisor and find its lock, its processes and its address."""
    began = time.monotonic()
    await scene.tart.start(scene.runs, VM)
    async with asyncio.timeout(BOOT.total_seconds()):
        while not scene.tart.is_running(VM, scene.host):
            expect_alive(scene)
            await asyncio.sleep(0.2)
        while (address := await scene.tart.ip(VM, timedelta(seconds=2))) is None:
            expect_alive(scene)
    guests = scene.host.guest_processes()
    expect(any(VM in each.argv for each in guests), f"tart is not among {guests}")
    if IS_MAC:
        expect(len(guests) > 1, "the framework's own process is not seen")
    return f"{address} after {time.monotonic() - began:.0f} s"


def expect_alive(scene: Scene) -> None:
    """Fail with the end of tart's output if the run is over."""
    ended = scene.runs.find_exit(VM)
    expect(ended is None, f"it ended with {ended}: {scene.runs.output_tail(VM)}")


async def vm_stops(scene: Scene) -> str:
    """Stop the VM; its exit is recorded, and its lock and processes are gone."""
    await scene.tart.stop(VM, timedelta(seconds=30))
    ended = await asyncio.wait_for(scene.runs.wait(VM), timeout=TIMEOUT_SECONDS)
    expect(ended.code == 0, f"tart ended with {ended.code}: {scene.runs.output_tail(VM)}")
    expect(not scene.tart.is_running(VM, scene.host), "its lock is still held")
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while remaining := [each for each in scene.host.guest_processes() if VM in each.argv]:
        expect(time.monotonic() < deadline, f"left: {remaining}")
        await asyncio.sleep(0.1)
    return f"code 0 at {ended.at}"


async def vm_is_deleted(scene: Scene) -> str:
    """Delete the VM, twice."""
    for _ in range(2):
        await scene.tart.delete(VM)
    expect(not scene.tart.has_vm(VM), "it is still there")
    scene.runs.forget(VM)
    return "twice"


SYSTEM: Sequence[Check] = (
    boot_has_an_id,
    system_is_identified,
    starts_of_processes_agree,
    holders_of_locks_are_seen,
    processes_are_listed,
    cpu_time_is_in_seconds,
    address_is_ours,
    disk_space_equals_df,
    exits_are_noticed_at_once,
    runs_are_supervised,
    session_is_there,
)
TART: Sequence[Check] = (
    tart_answers,
    image_is_pulled,
    clone_has_its_size,
    vm_boots,
    vm_stops,
    vm_is_deleted,
)


async def run_check(check: Check, scene: Scene) -> None:
    """Run one check and print its line."""
    name = check.__name__.replace("_", " ")
    try:
        print(f"ok    {name}: {await check(scene)}", flush=True)
    except (CheckFailed, errors.BramleyError, OSError, subprocess.CalledProcessError) as error:
        scene.failed.append(name)
        print(f"WRONG {name}: {error}", flush=True)


async def accept(binary: str, image: str, folder: Path) -> int:
    """Run the checks and return how many failed; what runs at the end is killed."""
    host = platform.current(tart_home=folder / "tart")
    programs = SystemPrograms(os.environ)
    metrics = AgentMetrics(CollectorRegistry())
    tart = Tart(programs, binary=binary, home=folder / "tart", metrics=metrics)
    runs = SupervisedRuns(folder / "state", folder / "logs", SystemClock(), environment=os.environ)
    scene = Scene(folder, host, tart, runs, image)
    try:
        for check in (*SYSTEM, *(TART if image else ())):
            await run_check(check, scene)
    finally:
        runs.kill(VM)
    return len(scene.failed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the host side of the agent on this machine."""
    parser = argparse.ArgumentParser(prog="python -m tools.acceptance", description=main.__doc__)
    parser.add_argument("--tart", default="tart", help="the tart to be used")
    parser.add_argument("--image", default="", help="an image to pull, boot and delete again")
    parser.add_argument("--folder", type=Path, help="where to work; by default a temporary folder")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        made = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        failed = asyncio.run(accept(options.tart, options.image, made))
    print(f"{failed} wrong" if failed else "all as it should be")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
