"""Whom a look is about: a Pod with its VM, or what a Pod that is gone has left behind."""

from __future__ import annotations

from dataclasses import dataclass

from bramley.agent import vm_names
from bramley.agent.ledger.ledger import Ledger
from bramley.agent.ledger.records import VmRecord
from bramley.api.pod import Pod
from bramley.runtime.keys import Key


@dataclass(frozen=True, slots=True)
class Subject:
    """One Pod, by uid, and the name of its VM; without the Pod itself when that is gone."""

    key: Key
    uid: str
    vm: str
    pod: Pod | None = None


def of_pod(pod: Pod, ledger: Ledger) -> Subject:
    """Return the subject of a Pod; its record says which VM it has, because older agents gave other names."""
    key = Key(pod.namespace or "", pod.name)
    record = ledger.find_by_uid(pod.uid)
    vm = record.vm if record else vm_names.of_pod(key.namespace, key.name, pod.uid)
    return Subject(key, pod.uid, vm, pod)


def of_record(record: VmRecord) -> Subject:
    """Return the subject of a record whose Pod is gone."""
    return Subject(Key(record.namespace, record.pod), record.uid, record.vm)
