"""Which guests respond, for the status of their Pods.

That a guest has ever responded is recorded in the ledger: only then its silence means that it hangs, also to the next agent. A
guest without a guest agent never responds and is never reported as unresponsive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from bramley.agent.ledger import Ledger, LedgerUnavailable, VmRecord, VmState
from bramley.base import log
from bramley.runtime.keys import Key
from bramley.runtime.queue import Trigger

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class GuestLiveness:
    """Stores for each running VM whether its guest responds; implements `node.guest_probes.LivenessSink`."""

    ledger: Ledger
    trigger: Trigger
    # Only guests that were probed since the agent started.
    _responsive: dict[str, bool] = field(default_factory=dict)

    def is_responsive(self, vm: str) -> bool | None:
        """Return whether the guest of a VM responds; None if that is not known yet, or it has never responded."""
        return self._responsive.get(vm)

    def expected_to_respond(self, vms: Iterable[str]) -> Collection[str]:
        """Return the VMs whose guest has responded before and is not known to be unresponsive."""
        return [vm for vm in vms if self._responsive.get(vm, self._has_responded(vm))]

    def record(self, *, responsive: Iterable[str] = (), unresponsive: Iterable[str] = ()) -> None:
        """Store which guests responded, and which certainly do not."""
        for vm in responsive:
            self._store(vm, is_responsive=True)
        for vm in unresponsive:
            self._store(vm, is_responsive=False)
        for vm in self._responsive.keys() - self.ledger.vms().keys():
            del self._responsive[vm]

    def forget(self, vm: str) -> None:
        """Drop what is known of a VM that is gone: another of the same name may follow."""
        self._responsive.pop(vm, None)

    def _store(self, vm: str, *, is_responsive: bool) -> None:
        record = self.ledger.vm(vm)
        if record is None or record.state is not VmState.STARTED:
            return
        if is_responsive and not record.has_answered:
            self._write(record)
        if self._responsive.get(vm) is not is_responsive:
            logger.info("Guest liveness changed", vm=vm, is_responsive=is_responsive)
            self._responsive[vm] = is_responsive
            self.trigger.enqueue(Key(record.namespace, record.pod))

    def _write(self, record: VmRecord) -> None:
        try:
            self.ledger.put(msgspec.structs.replace(record, has_answered=True))
        except LedgerUnavailable as error:
            logger.warning("Guest liveness not recorded", vm=record.vm, error=str(error))

    def _has_responded(self, vm: str) -> bool:
        record = self.ledger.vm(vm)
        return record is not None and record.has_answered
