"""VM slots: macOS runs at most two macOS guests at once, and a Node may advertise fewer VMs.

Every `tart run` of a macOS guest takes a slot, also one that is not in the ledger; a Linux guest takes none. The service of the
Virtualization framework has one process for each guest of any program, Docker's included, and names neither program nor guest: a
service process without a tart is no evidence of a macOS guest. A slot is leaked if a VM that is neither in the ledger nor under a
lease has it, or if macOS refused a start although fewer than two macOS guests were known; `leaks` returns the evidence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from bramley.agent import atomic_file
from bramley.agent.host import Host, HostProcess
from bramley.agent.ledger import Ledger, VmRecord, VmState
from bramley.agent.runs import Runs
from bramley.agent.tart.driver import Tart
from bramley.base import log
from bramley.base.clock import Clock

logger = log.get(__name__)

# The limit of macOS for its own guests, whatever the Node advertises.
SYSTEM_LIMIT = 2
# The process of a guest may end a moment after its tart, and takes its slot until then.
EXIT_GRACE = timedelta(seconds=10)
# The delay after a refusal although a slot should be free: only another attempt shows whether the slot is free again.
RETRY_AFTER_REFUSAL = timedelta(minutes=5)
# A refusal is reported for this long at most, even if no process ends that may have had the slot: such a process may belong to another
# program and never end. Without a report the scheduler binds another Pod, whose start is another attempt.
FORGET_REFUSAL_AFTER = timedelta(hours=1)

# The name of a VM under a lease whose process is not visible.
_INVISIBLE = "an invisible VM"
_CLAIMS = frozenset({VmState.CLAIMED, VmState.CLONED})
# tart's refusal names the VMs that run in its folder.
_LISTED = re.compile(r"other running VMs: ([^)\n]*)")


class Lease(Protocol):
    """A lease that a living process holds; without names it covers every VM of this host."""

    @property
    def vms(self) -> Sequence[str]:
        """Return the names of the VMs."""
        ...

    @property
    def pid(self) -> int:
        """Return the process of the lease's command."""
        ...


class Refusal(msgspec.Struct, frozen=True):
    """A start that macOS refused; `taken` macOS guests were known, and `services` had no tart for longer than `EXIT_GRACE`.

    `has_lease`: a lease was held whose VM was not visible, such as one of another user, and that VM may have had the slot.
    """

    vm: str
    taken: int
    services: tuple[int, ...]
    has_lease: bool
    boot_id: str


@dataclass(frozen=True, slots=True)
class TakenSlots:
    """The slots that VMs without a Pod take: the evidence of each leak, and the names of VMs under a lease, such as bakes."""

    leaks: tuple[str, ...] = ()
    leased: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Processes:
    """The processes that run VMs: each `tart run` by its VM, and the processes of the framework's service.

    Services without a tart have guests of other programs, or guests that outlive their tart.
    """

    named: Mapping[str, HostProcess]
    services: Sequence[int]
    without_tart: Sequence[int]


@dataclass(slots=True, eq=False)
class Slots:
    """Counts the VMs of this host, from the ledger, the runs, tart's locks and the process table.

    `leases` returns the leases that are held, `refusal_file` stores a refusal for the next agent of this boot.
    """

    ledger: Ledger
    _: KW_ONLY
    runs: Runs
    tart: Tart
    host: Host
    clock: Clock
    max_vms: int
    leases: Callable[[], Sequence[Lease]] = tuple
    refusal_file: Path | None = None
    _refusal: Refusal | None = None
    _refused_at: float = 0.0
    _unleased_since: dict[int, float] = field(default_factory=dict)
    _without_tart_since: dict[int, float] = field(default_factory=dict)
    _service_of: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._refusal = self._load()
        self._refused_at = self.clock.monotonic()

    @property
    def limit(self) -> int:
        """Return how many VMs of this Node may run at once."""
        return min(self.max_vms, SYSTEM_LIMIT)

    def has_room(self, vm: str) -> bool:
        """Return whether this VM may start now."""
        return self._has_room(vm, set())

    def has_room_for_claim(self, vm: str, *, uids: Collection[str]) -> bool:
        """Return whether this VM may be created now; the VMs being created for the Pods with these uids count as running."""
        return self._has_room(vm, self.claimed(uids))

    def claimed(self, uids: Collection[str]) -> set[str]:
        """Return the VMs that are being created for the Pods of these uids."""
        return {
            record.vm
            for record in self.ledger.vms().values()
            if record.state in _CLAIMS and record.uid in uids
        }

    def record_refusal(self, vm: str, message: str = "") -> None:
        """Record that macOS refused to run one more VM, unless the VMs that run, or that tart's message names, explain it."""
        processes = self._processes()
        listed = _LISTED.search(message)
        named = {name.strip() for name in listed.group(1).split(",")} if listed else set()
        known = self._macos(self._occupied(processes) | named) | set(self._foreign(processes))
        taken = len(known - {vm, ""})
        if taken >= SYSTEM_LIMIT:
            return
        # Not the young ones: the service of the refused start itself ends a moment later.
        services, has_lease = tuple(self._lasting(processes)), self._has_lease_without_vm(processes)
        self._put(Refusal(vm, taken, services, has_lease, self._boot_id()))

    def record_start(self, vm: str) -> None:
        """Record that a VM has started, which disproves a refusal if at least as many others ran."""
        if self._refusal is not None:
            processes = self._processes()
            others = self._macos(self._occupied(processes) - {vm}) | set(self._foreign(processes))
            if len(others) >= self._refusal.taken and not self.tart.is_linux(vm):
                self._put(None)

    def taken_by_others(self) -> TakenSlots:
        """Return which slots are not available for VMs of this Node, and why."""
        processes = self._processes()
        self._drop_disproved_refusal(processes)
        foreign, refused = self._foreign(processes), tuple(self._unexplained_refusal())
        leased = sorted(name for name, each in foreign.items() if each.is_leased)
        if self._refusal is not None and self._refusal.has_lease:
            return TakenSlots(self._unleased(foreign), (*leased, *(_INVISIBLE for _ in refused)))
        return TakenSlots((*self._unleased(foreign), *refused), tuple(leased))

    def leaks(self) -> Sequence[str]:
        """Return the evidence for each leaked slot."""
        return self.taken_by_others().leaks

    def occupied(self) -> set[str]:
        """Return the VMs of the ledger that run, stop, or are about to start."""
        return self._occupied(self._processes())

    def others(self) -> Sequence[str]:
        """Return what takes slots in addition to the VMs of the ledger, for people."""
        processes = self._processes()
        foreign = [
            f"{name} ({'under a lease' if each.is_leased else 'not in the ledger'})"
            for name, each in sorted(self._foreign(processes).items())
        ]
        ending = ["a VM that is ending"] * self._ending(processes)
        leaked = ["a leaked slot"] * (SYSTEM_LIMIT - self._system_limit())
        return [*foreign, *ending, *leaked]

    def is_held(self, vm: str) -> bool:
        """Return whether a process holds tart's lock of a VM."""
        return self.tart.is_running(vm, self.host)

    def _has_room(self, vm: str, claims: set[str]) -> bool:
        processes = self._processes()
        self._drop_disproved_refusal(processes)
        own = (self._occupied(processes) | claims) - {vm}
        if len(own) >= self.max_vms or self.tart.is_linux(vm):
            return len(own) < self.max_vms
        taken = len(self._macos(own)) + len(self._foreign(processes)) + self._ending(processes)
        return taken < self._system_limit()

    def _system_limit(self) -> int:
        """Return how many macOS guests may run; after a refusal, for a while only as many as were known then."""
        refusal, until = self._refusal, self._refused_at + RETRY_AFTER_REFUSAL.total_seconds()
        if refusal is None or self.clock.monotonic() >= until:
            return SYSTEM_LIMIT
        return refusal.taken

    def _macos(self, vms: set[str]) -> set[str]:
        return {vm for vm in vms if not self.tart.is_linux(vm)}

    def _processes(self) -> _Processes:
        processes = sorted(self.host.guest_processes(), key=lambda each: each.pid)
        tarts = [each for each in processes if _vm_of(each)]
        services = [each.pid for each in processes if not _vm_of(each)]
        self._pair([each.pid for each in tarts], services)
        paired = set(self._service_of.values())
        without_tart = [pid for pid in services if pid not in paired]
        before, now = self._without_tart_since, self.clock.monotonic()
        self._without_tart_since = {pid: before.get(pid, now) for pid in without_tart}
        return _Processes({_vm_of(each): each for each in tarts}, services, without_tart)

    def _pair(self, tarts: Sequence[int], services: Sequence[int]) -> None:
        """Assign to each tart the first service that appeared after it, as long as both live.

        Not one that had no tart before: a tart that starts has no service yet, and would get that of another program.
        """
        before = self._service_of.items()
        pairs = {tart: pid for tart, pid in before if tart in tarts and pid in services}
        taken = set(pairs.values()) | self._without_tart_since.keys()
        free = [pid for pid in services if pid not in taken]
        for tart in (each for each in tarts if each not in pairs):
            # Pids start again from the lowest at some time.
            service = next((pid for pid in free if pid > tart), free[0] if free else None)
            if service is not None:
                free.remove(service)
                pairs[tart] = service
        self._service_of = pairs

    def _occupied(self, processes: _Processes) -> set[str]:
        records = self.ledger.vms().values()
        return {each.vm for each in records if each.vm in processes.named or self._occupies(each)}

    def _occupies(self, record: VmRecord) -> bool:
        vm = record.vm
        if self.runs.is_alive(vm) or self.is_held(vm):
            return True
        # A record is STARTED before its run exists; in between the record alone takes the slot.
        is_starting = record.state is VmState.STARTED and not self.runs.exists(vm)
        return is_starting and not record.is_adopted and record.boot_id == self.host.boot_id()

    def _foreign(self, processes: _Processes) -> dict[str, _ForeignVm]:
        """Return the macOS VMs that are not in the ledger; a VM in an unknown folder counts as macOS."""
        known = self.ledger.vms()
        foreign = {
            name: each
            for name, each in processes.named.items()
            if name not in known and not self.tart.is_linux(name, each.tart_home)
        }
        leases = self.leases() if foreign else ()

        def is_leased(name: str, process: HostProcess) -> bool:
            return any(self._covers(lease, name, process) for lease in leases)

        return {
            name: _ForeignVm(each.pid, each.argv, is_leased=is_leased(name, each))
            for name, each in foreign.items()
        }

    def _covers(self, lease: Lease, vm: str, process: HostProcess) -> bool:
        if vm in lease.vms or not lease.vms:
            return True
        # The children of a command that has ended hold its lease, but are no longer its descendants.
        ancestors = self.host.ancestors
        return lease.pid in ancestors(process.pid) or not ancestors(lease.pid)

    def _has_lease_without_vm(self, processes: _Processes) -> bool:
        known = self.ledger.vms()
        foreign = [(name, each) for name, each in processes.named.items() if name not in known]
        return not all(
            any(self._covers(lease, name, each) for name, each in foreign)
            for lease in self.leases()
        )

    def _unleased(self, foreign: Mapping[str, _ForeignVm]) -> tuple[str, ...]:
        now, grace = self.clock.monotonic(), EXIT_GRACE.total_seconds()
        unleased = {name: each for name, each in foreign.items() if not each.is_leased}
        before = self._unleased_since
        self._unleased_since = {each.pid: before.get(each.pid, now) for each in unleased.values()}
        return tuple(
            f"process {each.pid} runs VM {name}, which is not in the ledger and not under a lease:"
            f" {' '.join(each.argv)[:200]}"
            for name, each in unleased.items()
            if now - self._unleased_since[each.pid] >= grace
        )

    def _ending(self, processes: _Processes) -> int:
        """Return how many services have lost their tart a moment ago."""
        return len(processes.without_tart) - len(self._lasting(processes))

    def _lasting(self, processes: _Processes) -> list[int]:
        latest = self.clock.monotonic() - EXIT_GRACE.total_seconds()
        since = self._without_tart_since
        return [pid for pid in processes.without_tart if since[pid] <= latest]

    def _drop_disproved_refusal(self, processes: _Processes) -> None:
        """Drop a refusal when a process or a lease ended that may have had the slot, or when it is old."""
        refusal = self._refusal
        if refusal is None:
            return
        age = self.clock.monotonic() - self._refused_at
        is_old = age >= FORGET_REFUSAL_AFTER.total_seconds()
        is_disproved = not set(refusal.services) <= set(processes.services)
        if is_old or is_disproved or (refusal.has_lease and not self.leases()):
            self._put(None)

    def _unexplained_refusal(self) -> Iterator[str]:
        # Also while the next start is attempted.
        refusal = self._refusal
        if refusal is None:
            return
        pids = ", ".join(map(str, refusal.services))
        services = f" (processes of the Virtualization framework without a tart: {pids})"
        for _ in range(SYSTEM_LIMIT - refusal.taken):
            yield (
                f"macOS refused to start VM {refusal.vm} although {refusal.taken} of {SYSTEM_LIMIT} VMs"
                f" were known to run{services if pids else ''}; unless another program runs a macOS VM,"
                " the slot is free only after the next reboot"
            )

    def _load(self) -> Refusal | None:
        """Return the refusal that an earlier agent recorded in this boot."""
        if self.refusal_file is None:
            return None
        try:
            refusal = msgspec.json.decode(self.refusal_file.read_bytes(), type=Refusal)
        except (OSError, msgspec.MsgspecError):
            return None
        is_this_boot = bool(refusal.boot_id) and refusal.boot_id == self._boot_id()
        return refusal if is_this_boot and 0 <= refusal.taken < SYSTEM_LIMIT else None

    def _put(self, refusal: Refusal | None) -> None:
        self._refusal, self._refused_at = refusal, self.clock.monotonic()
        file = self.refusal_file
        try:
            if file is not None and refusal is not None:
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                atomic_file.replace(file, msgspec.json.encode(refusal), durable=False)
            elif file is not None:
                file.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("Refusal not stored", file=str(file), error=str(error))

    def _boot_id(self) -> str:
        try:
            return self.host.boot_id()
        except OSError:
            return ""


@dataclass(frozen=True, slots=True)
class _ForeignVm:
    """A process that runs a macOS VM that is not in the ledger."""

    pid: int
    argv: tuple[str, ...]
    is_leased: bool


# Options of `tart run` whose value may be a separate argument.
_OPTIONS_WITH_VALUE = frozenset(
    {
        "--dir",
        "--disk",
        "--net-bridged",
        "--net-softnet-allow",
        "--net-softnet-block",
        "--net-softnet-control-fd",
        "--net-softnet-expose",
        "--provisioning-opts",
        "--root-disk-opts",
        "--rosetta",
        "--serial-path",
    }
)


def _vm_of(process: HostProcess) -> str:
    """Return the VM that a process names; empty if it names none."""
    argv = process.argv
    words = iter(argv[argv.index("run") + 1 :] if "run" in argv else ())
    for word in words:
        if word in _OPTIONS_WITH_VALUE:
            next(words, "")
        elif not word.startswith("-"):
            return word
    return ""
