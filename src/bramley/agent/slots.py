"""VM slots: macOS runs at most two guests at once, and a Node may advertise fewer.

Every process that runs a VM takes a slot until it is gone, whether the VM is in the ledger or not. A slot that is taken by a
VM that is not in the ledger is leaked: `leaks` returns the evidence, and no VM is started in that slot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta

from bramley.agent.host import Host, HostProcess
from bramley.agent.ledger import Ledger, VmRecord, VmState
from bramley.agent.runs import Runs
from bramley.agent.tart.driver import Tart
from bramley.base.clock import Clock

# The limit of the kernel, whatever the Node advertises.
SYSTEM_LIMIT = 2
# The process of a guest may end a moment after its tart; one that stays longer is leaked.
EXIT_GRACE = timedelta(seconds=10)
# The delay after a refusal although a slot should be free: only another attempt shows whether the slot is free again.
RETRY_AFTER_REFUSAL = timedelta(minutes=5)

_CLAIMS = frozenset({VmState.CLAIMED, VmState.CLONED})


@dataclass(frozen=True, slots=True)
class _Refusal:
    vm: str
    taken: int
    until: float


@dataclass(slots=True, eq=False)
class Slots:
    """Counts the VMs of this host, from the ledger, the runs, tart's locks and the process table."""

    ledger: Ledger
    _: KW_ONLY
    runs: Runs
    tart: Tart
    host: Host
    clock: Clock
    max_vms: int
    _refusal: _Refusal | None = None
    _unknown_since: dict[int, float] = field(default_factory=dict)

    @property
    def limit(self) -> int:
        """Return how many VMs may run at once."""
        return min(self.max_vms, SYSTEM_LIMIT)

    def has_room(self, vm: str) -> bool:
        """Return whether this VM may start now."""
        return self._taken_by_others(vm) < self._allowed()

    def has_room_for_claim(self, vm: str, *, uids: Collection[str]) -> bool:
        """Return whether this VM may be created now; the VMs being created for the Pods with these uids count as running."""
        return self._taken_by_others(vm, self.claimed(uids) - {vm}) < self._allowed()

    def claimed(self, uids: Collection[str]) -> set[str]:
        """Return the VMs that are being created for the Pods of these uids."""
        return {
            record.vm
            for record in self.ledger.vms().values()
            if record.state in _CLAIMS and record.uid in uids
        }

    def record_refusal(self, vm: str) -> None:
        """Record that the system refused to run one more VM."""
        until = self.clock.monotonic() + RETRY_AFTER_REFUSAL.total_seconds()
        self._refusal = _Refusal(vm, self._taken_by_others(vm), until)

    def clear_refusal(self) -> None:
        """Clear the refusal after a VM has started."""
        self._refusal = None

    def leaks(self) -> Sequence[str]:
        """Return the evidence for each leaked slot."""
        now, grace = self.clock.monotonic(), EXIT_GRACE.total_seconds()
        unknown = self._unknown(self.host.guest_processes())
        before = self._unknown_since
        self._unknown_since = {each.pid: before.get(each.pid, now) for each in unknown}
        evidence = [
            f"process {each.pid} runs a VM that is not in the ledger: {' '.join(each.argv)[:200]}"
            for each in unknown
            if now - self._unknown_since[each.pid] >= grace
        ]
        return [*evidence, *self._unexplained_refusal()]

    def occupied(self) -> set[str]:
        """Return the VMs of the ledger that run, stop, or are about to start."""
        return self._occupied(self.host.guest_processes())

    def is_held(self, vm: str) -> bool:
        """Return whether a process holds tart's lock of a VM."""
        return self.tart.is_running(vm, self.host)

    def _allowed(self) -> int:
        refusal = self._current_refusal()
        return self.limit if refusal is None else min(self.limit, refusal.taken)

    def _taken_by_others(self, vm: str, claims: set[str] | None = None) -> int:
        # An unknown process counts at once, although it is reported as a leak only after the grace period.
        processes = self.host.guest_processes()
        others = (self._occupied(processes) | (claims or set())) - {vm}
        return len(others) + len(self._unknown(processes))

    def _occupied(self, processes: Sequence[HostProcess]) -> set[str]:
        named = {_vm_of(each) for each in processes}
        records = self.ledger.vms().values()
        return {each.vm for each in records if each.vm in named or self._occupies(each)}

    def _occupies(self, record: VmRecord) -> bool:
        vm = record.vm
        if self.runs.is_alive(vm) or self.is_held(vm):
            return True
        # A record is STARTED before its run exists; in between the record alone takes the slot.
        is_starting = record.state is VmState.STARTED and not self.runs.exists(vm)
        return is_starting and not record.is_adopted and record.boot_id == self.host.boot_id()

    def _unknown(self, processes: Sequence[HostProcess]) -> list[HostProcess]:
        """Return one process for each VM that is not in the ledger."""
        known = self.ledger.vms()
        named = {name: each for each in processes if (name := _vm_of(each))}
        unknown = [each for name, each in named.items() if name not in known]
        # The framework's own processes do not name their VM; there is one for each VM that runs.
        unnamed = [each for each in processes if not _vm_of(each)]
        # The oldest come first; the surplus ones have outlived their tart.
        return unnamed[: max(len(unnamed) - len(named), 0)] + unknown

    def _current_refusal(self) -> _Refusal | None:
        refusal = self._refusal
        if refusal is not None and self.clock.monotonic() >= refusal.until:
            return None
        return refusal

    def _unexplained_refusal(self) -> Iterator[str]:
        # Reported until a start succeeds, also while the next one is attempted.
        refusal = self._refusal
        if refusal is None:
            return
        for _ in range(SYSTEM_LIMIT - refusal.taken):
            yield (
                f"the system refused to start VM {refusal.vm} although {refusal.taken} of"
                f" {SYSTEM_LIMIT} VMs were known to run"
            )


def _vm_of(process: HostProcess) -> str:
    """Return the VM that a process names; empty if it names none."""
    argv = process.argv
    first = argv.index("run") + 1 if "run" in argv else 1
    return next((argument for argument in argv[first:] if not argument.startswith("-")), "")
