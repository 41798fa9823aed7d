"""What must hold at every checkpoint of an agent, and what may be left when everything has come to rest.

`observe` runs at each checkpoint of the agent and whenever time has passed. It records violations and never raises, because
it often runs inside the agent, which would handle the error as one of its own; `check` raises.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path

import msgspec

from bramley.agent import vm_names
from bramley.agent.ledger import Ledger, VmRecord, VmState
from bramley.api.core import Pod
from bramley.api.names import agent, finalizers, guest
from bramley.apiserver.store.store import Store
from bramley.sim.mac.mac import SimulatedMac

MOST_GUESTS = 2
_HASH_LENGTH = 32
# L1 and L2: what a Pod and its VM may take beyond the grace.
BOUND = timedelta(seconds=60)
FINISHED = frozenset({"Succeeded", "Failed"})
USED = frozenset({VmState.STARTED, VmState.ENDED, VmState.REPORTED})

_vm_of = lru_cache(vm_names.of_pod)
_pods = msgspec.json.Decoder(Pod)
_records = msgspec.json.Decoder(VmRecord)


@dataclass(slots=True)
class Invariants:
    """The invariants of one Mac and its Pods; `excused` are uids of Pods that were force-deleted without the agent."""

    store: Store
    mac: SimulatedMac
    node: str
    # When the agent last started, None while there is none; L2 counts from then on.
    up_since: datetime | None = None
    has_bounds: bool = True
    violations: list[str] = field(default_factory=list)
    excused: set[str] = field(default_factory=set)
    # By uid: the Pods at the last observation, and the code of the first terminal status that the server acknowledged.
    pods: dict[str, Pod] = field(default_factory=dict)
    ends: dict[str, int | None] = field(default_factory=dict)
    # By VM: what its guest reported.
    reports: dict[str, int] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    # By VM: how many of its disks were discarded because their guest had no address, so that no job can have run.
    abandoned: Counter[str] = field(default_factory=Counter)
    supervised: set[str] = field(default_factory=set)
    present: set[str] = field(default_factory=set)
    _decoded: dict[int, Pod] = field(default_factory=dict)

    def check(self) -> None:
        """Observe, and raise if an invariant was ever violated."""
        self.observe()
        assert not self.violations, "\n".join(dict.fromkeys(self.violations))

    def observe(self) -> None:
        """Record the invariants that are violated now."""
        before, self.pods = self.pods, self.current()
        self._read_reports()
        self._check_starts()
        for uid, pod in self.pods.items():
            self._check_end(uid, pod)
            self._check_deadline(pod)
        self._check_disks(before)
        for uid, pod in before.items():
            self._check_release(uid, pod)

    def current(self) -> dict[str, Pod]:
        """Return the Pods of this Mac by uid, as the server has them."""
        records = self.store.list("pods")
        kept = {each.rv: self._decoded.get(each.rv) or _pods.decode(each.body) for each in records}
        self._decoded = kept
        return {pod.uid: pod for pod in kept.values() if pod.spec.node_name == self.node}

    def vms(self) -> set[str]:
        """Return the VMs on disk that are no golden bases."""
        return {each for each in _names(self.mac.folders.tart_home / "vms") if not _is_golden(each)}

    def orphaned_guests(self) -> set[str]:
        """Return the VMs whose guests run though their tart is gone; no agent can find their owner."""
        locks, home = self.mac.tart.run_locks, self.mac.folders.tart_home
        files = {vm: home / "vms" / vm / "config.json" for vm in self.mac.tart.guests}
        return {vm for vm, file in files.items() if locks.holder(str(file)) is None}

    def has_booted(self, vm: str) -> bool:
        """Return whether a guest has booted from a disk of this VM that was not discarded."""
        return self.mac.tart.started_vms.count(vm) > self.abandoned[vm]

    def _running(self) -> set[str]:
        return self.mac.tart.guests.keys() - self.orphaned_guests()

    def _read_reports(self) -> None:
        folder = self.mac.folders.user_data
        for vm in _names(folder):
            code = _number(folder / vm / guest.STATUS_SHARE / guest.EXIT_CODE_FILE)
            if code is not None:
                self.reports[vm] = code

    def _check_starts(self) -> None:
        """S1, S2, S3: one start per disk of a Pod, which is recorded as used before; at most two guests at once."""
        world = self.mac.tart
        if len(world.started_vms) != len(self.started):
            self.started = set(world.started_vms)
            for vm in self.started:
                allowed = 1 + self.abandoned[vm]
                self._must(world.started_vms.count(vm) <= allowed, f"S2: {vm} was booted again")
        for vm in self.mac.supervised.keys() - self.supervised:
            record = self._record(vm)
            state = record.state if record else None
            self._must(state in USED, f"S2: {vm} is started and its record says {state}")
        self.supervised = set(self.mac.supervised)
        self._must(world.max_guests <= MOST_GUESTS, f"S3: {world.max_guests} guests at once")

    def _check_end(self, uid: str, pod: Pod) -> None:
        """Check that the first terminal status has the guest's code, comes after the guest's end and is the last."""
        if pod.status.phase not in FINISHED:
            self._must(uid not in self.ends, f"{pod.name} left its terminal phase")
            return
        vm, code = vm_of(pod), _code(pod)
        reported = self.reports.get(vm, code)
        self._must(
            code == reported, f"{pod.name}: its guest reported {reported}, the server has {code}"
        )
        self._must(self.ends.setdefault(uid, code) == code, f"{pod.name}: its exit code changed")
        self._must(vm not in self._running(), f"{pod.name} has ended and its VM runs")

    def _check_disks(self, before: Mapping[str, Pod]) -> None:
        """Check that no VM was deleted before the server had acknowledged the terminal status."""
        was, self.present = self.present, self.vms()
        owners = {vm_of(pod): uid for uid, pod in [*before.items(), *self.pods.items()]}
        for vm in filter(self.has_booted, was - self.present):
            uid = owners.get(vm, "")
            is_published = uid in self.ends or uid not in self.pods
            record = self._record(vm)
            if record is not None and record.is_abandoned and not is_published:
                self.abandoned[vm] += 1
                continue
            self._must(is_published, f"{vm} was deleted before its end was published")

    def _record(self, vm: str) -> VmRecord | None:
        """Return the record of a VM; None if there is none, or if a test has damaged it."""
        try:
            return _records.decode((self.mac.folders.ledger / "vms" / f"{vm}.json").read_bytes())
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def _check_release(self, uid: str, before: Pod) -> None:
        """S10: the finalizer is removed after the VM; and no Pod is deleted without a terminal status."""
        now = self.pods.get(uid)
        if uid in self.excused:
            return
        vm = vm_of(before)
        if finalizers.VM_CLEANUP in before.metadata.finalizers and not _is_held(now):
            is_there = vm in self.present or vm in self._running()
            self._must(not is_there, f"S10: {vm} exists and its Pod's finalizer was removed")
        if now is None and self.has_booted(vm):
            self._must(uid in self.ends, f"{before.name} is gone and its end was never published")

    def _check_deadline(self, pod: Pod) -> None:
        """L2: a Pod being deleted is gone within its grace period and a minute, counted while the agent runs."""
        due = pod.metadata.deletion_timestamp
        if due is None or self.up_since is None or not self.has_bounds:
            return
        grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
        latest = max(due, self.up_since + grace) + BOUND
        # By the true time: the Mac's own clock may have been set.
        self._must(self.mac.tart.clock.now() <= latest, f"L2: {pod.name} is still there")

    def _must(self, holds: bool, what: str) -> None:
        if not holds:
            self.violations.append(f"{what} (at {self.mac.clock.monotonic():.2f} s)")

    def left(self) -> list[str]:
        """Return what is left of Pods that have ended or are gone; empty at rest."""
        folders = self.mac.folders
        ledger = Ledger(folders.ledger, durable=False)
        found = {
            "VM": self.vms(),
            "user data": _names(folders.user_data),
            "record": ledger.vms().keys(),
            "unreadable record": {each.name for each in ledger.unreadable()},
            "run": self.mac.supervised.keys(),
            "guest": self.mac.tart.guests.keys(),
            "unfinished work": self._unfinished(folders.tart_home / "tmp"),
            "held Pod": {pod.name for pod in self.current().values() if _is_held(pod)},
        }
        return [f"{kind} {name}" for kind, names in found.items() for name in sorted(names)]

    def _unfinished(self, folder: Path) -> set[str]:
        """Return the staging folders; not the partial downloads, named by a hash, that the agent keeps for a Pod that tries again."""
        flocks = self.mac.tart.flocks
        return {
            name
            for name in _names(folder)
            if len(name) != _HASH_LENGTH or flocks.holder(str(folder / name)) is None
        }


def vm_of(pod: Pod) -> str:
    """Return the name of a Pod's VM."""
    return _vm_of(pod.metadata.namespace or "", pod.name, pod.uid)


def _is_held(pod: Pod | None) -> bool:
    return pod is not None and finalizers.VM_CLEANUP in pod.metadata.finalizers


def _is_golden(vm: str) -> bool:
    return vm.startswith(agent.GOLDEN_VM_PREFIX)


def _code(pod: Pod) -> int | None:
    ended = [each.state.terminated for each in pod.status.container_statuses]
    return next((each.exit_code for each in ended if each is not None), None)


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))  # noqa: PTH208 - called at every checkpoint, and twice as fast
    except FileNotFoundError:
        return set()


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text()) if file.is_file() and not file.is_symlink() else None
    except (OSError, ValueError):
        return None
