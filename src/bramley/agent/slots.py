"""How many VMs may run: Apple's system runs two guests at once, and a Node may advertise fewer.

Whoever holds a VM takes a slot, whether the ledger knows it or not, until its processes are gone. A slot that is taken for no
reason that the ledger knows is leaked: `leaks` tells the evidence, and no VM is started on it while it lasts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bramley.agent.host import GuestProcess, Host
from bramley.agent.ledger import Ledger, VmRecord, VmState
from bramley.agent.runs import Runs
from bramley.agent.tart.driver import Tart
from bramley.base.clock import Clock

# What the kernel allows, whatever is advertised.
SYSTEM_LIMIT = 2
# A guest's process may end a moment after its tart; what stays longer than this has been left behind.
SETTLING = timedelta(seconds=10)
# After a refusal that nothing explains the next start is tried so much later: only trying tells.
RETRY_AFTER_REFUSAL = timedelta(minutes=5)

_CLAIMS = frozenset({VmState.CLAIMED, VmState.CLONED})


@dataclass(frozen=True, slots=True)
class _Refusal:
    vm: str
    taken: int
    until: float


class Slots:
    """Counts the VMs of this host, from the ledger, the runs, tart's locks and the table of processes."""

    def __init__(
        self, ledger: Ledger, *, runs: Runs, tart: Tart, host: Host, clock: Clock, most: int
    ) -> None:
        self.limit = min(most, SYSTEM_LIMIT)
        self._ledger = ledger
        self._runs = runs
        self._tart = tart
        self._host = host
        self._clock = clock
        self._refusal: _Refusal | None = None
        self._strangers_since: dict[int, float] = {}

    def has_room(self, vm: str) -> bool:
        """Tell whether this VM may start now."""
        return self._taken_by_others(vm) < self._allowed()

    def has_room_for_claim(self, vm: str, *, of: Collection[str]) -> bool:
        """Tell whether this VM may be made now; those that are being made for the Pods `of` these uids count as if they ran."""
        return self._taken_by_others(vm, self.claimed(of) - {vm}) < self._allowed()

    def claimed(self, of: Collection[str]) -> set[str]:
        """Return the VMs that are being made for the Pods of these uids."""
        return {
            record.vm
            for record in self._ledger.vms().values()
            if record.state in _CLAIMS and record.uid in of
        }

    def record_refusal(self, vm: str) -> None:
        """Note that the system refused one more VM."""
        until = self._clock.monotonic() + RETRY_AFTER_REFUSAL.total_seconds()
        self._refusal = _Refusal(vm, self._taken_by_others(vm), until)

    def clear_refusal(self) -> None:
        """Note that the system let a VM start, so that an earlier refusal means nothing any more."""
        self._refusal = None

    def leaks(self) -> Sequence[str]:
        """Return the evidence for each slot that is taken for no reason that we know."""
        now, settling = self._clock.monotonic(), SETTLING.total_seconds()
        strangers = self._strangers(self._host.guest_processes())
        known = self._strangers_since
        self._strangers_since = {each.pid: known.get(each.pid, now) for each in strangers}
        told = [
            f"process {stranger.pid} holds a VM that no record explains: {' '.join(stranger.argv)[:200]}"
            for stranger in strangers
            if now - self._strangers_since[stranger.pid] >= settling
        ]
        return [*told, *self._unexplained_refusal()]

    def occupied(self) -> set[str]:
        """Return the VMs of the ledger that run, stop, or are about to start."""
        return self._occupied(self._host.guest_processes())

    def is_held(self, vm: str) -> bool:
        """Tell whether somebody holds tart's lock of a VM."""
        return self._tart.is_running(vm, self._host)

    def _allowed(self) -> int:
        refusal = self._current_refusal()
        return self.limit if refusal is None else min(self.limit, refusal.taken)

    def _taken_by_others(self, vm: str, claims: set[str] | None = None) -> int:
        # A stranger counts at once, though it may be told as a leak only later.
        processes = self._host.guest_processes()
        others = (self._occupied(processes) | (claims or set())) - {vm}
        return len(others) + len(self._strangers(processes))

    def _occupied(self, processes: Sequence[GuestProcess]) -> set[str]:
        named = {_vm_of(each) for each in processes}
        records = self._ledger.vms().values()
        return {each.vm for each in records if each.vm in named or self._occupies(each)}

    def _occupies(self, record: VmRecord) -> bool:
        vm = record.vm
        if self._runs.is_alive(vm) or self.is_held(vm):
            return True
        is_starting = record.state is VmState.STARTED and not self._runs.is_begun(vm)
        return is_starting and not record.is_adopted and record.boot_id == self._host.boot_id()

    def _strangers(self, processes: Sequence[GuestProcess]) -> list[GuestProcess]:
        """Return one process for each VM that no record explains."""
        known = self._ledger.vms()
        named = {name: each for each in processes if (name := _vm_of(each))}
        strangers = [each for name, each in named.items() if name not in known]
        # The framework's own processes do not tell whose they are; there is one for each VM that runs.
        nameless = [each for each in processes if not _vm_of(each)]
        # The oldest are those that were left behind.
        return nameless[: max(len(nameless) - len(named), 0)] + strangers

    def _current_refusal(self) -> _Refusal | None:
        refusal = self._refusal
        if refusal is not None and self._clock.monotonic() >= refusal.until:
            return None
        return refusal

    def _unexplained_refusal(self) -> Iterator[str]:
        # It stays told until a start succeeds, also while the next one is tried.
        refusal = self._refusal
        if refusal is None:
            return
        for _ in range(SYSTEM_LIMIT - refusal.taken):
            yield (
                f"the system refused to start VM {refusal.vm} although {refusal.taken} of"
                f" {SYSTEM_LIMIT} VMs were known to run"
            )


def _vm_of(process: GuestProcess) -> str:
    """Return the VM that a process names; empty if it names none."""
    words = process.argv
    after = words.index("run") + 1 if "run" in words else 1
    return next((word for word in words[after:] if not word.startswith("-")), "")
