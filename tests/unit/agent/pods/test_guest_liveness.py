"""Liveness is kept for running VMs only, recorded once, and enqueues their Pods."""

from __future__ import annotations

from pathlib import Path

from bramley.agent.ledger import Ledger, LedgerUnavailable, VmRecord, VmState
from bramley.agent.pods.guest_liveness import GuestLiveness
from bramley.runtime.queue import Trigger


class Full(Ledger):
    """A ledger on a disk that is full."""

    def put(self, record: VmRecord) -> None:
        raise LedgerUnavailable(f"no room for {record.vm}")


def a_ledger(folder: Path, kind: type[Ledger] = Ledger) -> Ledger:
    states = {"runs": VmState.STARTED, "ended": VmState.ENDED}
    ledger = Ledger(folder, durable=False)
    for vm, state in states.items():
        ledger.put(VmRecord(vm=vm, namespace="n", pod=vm, uid=vm, image="i", state=state))
    return kind(folder, durable=False)


def test_only_running_vms_are_recorded(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    liveness = GuestLiveness(ledger, Trigger())

    liveness.record(responsive=["runs", "ended", "unknown"])

    assert [liveness.is_responsive(vm) for vm in ("runs", "ended", "unknown")] == [True, None, None]
    assert {vm for vm, record in ledger.vms().items() if record.has_answered} == {"runs"}


def test_silence_is_a_change_once_and_only_of_a_guest_that_answered(tmp_path: Path) -> None:
    liveness = GuestLiveness(a_ledger(tmp_path), Trigger())
    assert liveness.expected_to_respond(["runs"]) == []
    liveness.record(responsive=["runs"])
    assert liveness.expected_to_respond(["runs"]) == ["runs"]

    liveness.record(unresponsive=["runs"])

    assert (liveness.is_responsive("runs"), liveness.expected_to_respond(["runs"])) == (False, [])
    liveness.record(responsive=["runs"])
    assert (liveness.is_responsive("runs"), liveness.expected_to_respond(["runs"])) == (
        True,
        ["runs"],
    )


def test_full_disk_does_not_stop_liveness(tmp_path: Path) -> None:
    liveness = GuestLiveness(a_ledger(tmp_path, Full), Trigger())

    liveness.record(responsive=["runs"])

    assert liveness.is_responsive("runs") is True


def test_vm_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    liveness = GuestLiveness(ledger, Trigger())
    liveness.record(responsive=["runs"])
    ledger.drop("runs")

    liveness.record()

    assert liveness.is_responsive("runs") is None
