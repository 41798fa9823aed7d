"""Which guests answer, for the status of their Pods: told by whoever asks them, and rung for when it changes.

That a guest has answered stands in the ledger, because only then its silence means something, also to the next agent. A guest
that never had an agent of its own is never silent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from bramley.agent.ledger import Ledger, LedgerUnavailable, VmRecord, VmState
from bramley.base import log
from bramley.runtime.keys import Key
from bramley.runtime.queue import Trigger

logger = log.get(__name__)


class Hearing:
    """Remembers of each running VM whether its guest answers; implements `node.listening.Ears`."""

    def __init__(self, ledger: Ledger, bell: Trigger) -> None:
        self._ledger = ledger
        self._bell = bell
        # Only of those that somebody has judged since the agent began.
        self._answers: dict[str, bool] = {}

    def answers(self, vm: str) -> bool | None:
        """Tell whether the guest of a VM answers; None if nobody knows yet, or its silence means nothing."""
        return self._answers.get(vm)

    def doubts(self, vms: Iterable[str]) -> Collection[str]:
        """Return those that have answered before and are not known to be silent."""
        return [vm for vm in vms if self._answers.get(vm, self._has_answered(vm))]

    def hear(self, *, answered: Iterable[str] = (), silent: Iterable[str] = ()) -> None:
        """Take who has answered, and whose silence is certain."""
        for vm in answered:
            self._note(vm, answers=True)
        for vm in silent:
            self._note(vm, answers=False)
        self._forget_the_ended()

    def _note(self, vm: str, *, answers: bool) -> None:
        record = self._ledger.vm(vm)
        if record is None or record.state is not VmState.STARTED:
            return
        if answers and not record.has_answered:
            self._write_down(record)
        if self._answers.get(vm) is not answers:
            logger.info("A guest is heard" if answers else "A guest is silent", vm=vm)
            self._answers[vm] = answers
            self._bell.enqueue(Key(record.namespace, record.pod))

    def _write_down(self, record: VmRecord) -> None:
        try:
            self._ledger.put(msgspec.structs.replace(record, has_answered=True))
        except LedgerUnavailable as error:
            logger.warning("Not written down", vm=record.vm, error=str(error))

    def _has_answered(self, vm: str) -> bool:
        record = self._ledger.vm(vm)
        return record is not None and record.has_answered

    def _forget_the_ended(self) -> None:
        for vm in self._answers.keys() - self._ledger.vms().keys():
            del self._answers[vm]
