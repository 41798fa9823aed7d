"""What a machine depends on beside its host: its Cluster and its owner, which may stop it, and what else has its name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from bramley.api.cluster_api import Machine
from bramley.api.core import Node
from bramley.api.names import annotations as annotation_names
from bramley.api.names import labels
from bramley.api.names import machines as names
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.machines import objects
from bramley.runtime.cache import Cache
from bramley.runtime.keys import Key, key_of
from bramley.runtime.outcome import CheckAgain, Outcome, Settled

BY_FLEET = "scaleway-machines.fleet"
_BY_NAME = "scaleway-machines.name"
_HALF_MINUTE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class MachineCaches:
    """What machines depend on, beside what all Macs depend on."""

    machines: Cache[ScalewayAppleSiliconMachine]
    owners: Cache[Machine]
    pauses: objects.Pauses

    def index(self) -> None:
        """Add the indexes."""
        self.machines.index(BY_FLEET, lambda each: [each.spec.fleet_name])
        self.machines.index(_BY_NAME, lambda each: [each.name])

    def gate(self, machine: ScalewayAppleSiliconMachine) -> Outcome | None:
        """Return why a machine is left alone now, or None."""
        if annotation_names.PAUSED in machine.metadata.annotations:
            return Settled()
        owner = self.owner(machine)
        name = (
            owner.spec.cluster_name if owner else machine.metadata.labels.get(labels.CAPI_CLUSTER)
        )
        if not name:
            # A machine without an owner is supported, too.
            return None
        cluster = self.pauses.cluster_of(machine, name)
        if cluster is None:
            return CheckAgain(_HALF_MINUTE, f"the Cluster {name} does not exist")
        if cluster.spec.paused:
            return Settled()
        if not cluster.status.infrastructure_ready:
            return CheckAgain(
                _HALF_MINUTE, f"the infrastructure of the Cluster {name} is not ready"
            )
        return None

    def owner(self, machine: ScalewayAppleSiliconMachine) -> Machine | None:
        """Return the Machine that owns a machine."""
        for reference in machine.metadata.owner_references:
            found = self.owners.find(Key(machine.namespace or "", reference.name))
            if found is not None and found.uid == reference.uid:
                return found
        return None

    def name_problem(self, machine: ScalewayAppleSiliconMachine, node: Node | None) -> str:
        """Return what has the name of a machine already, empty if nothing: the Node, the host and the identity would be shared."""
        for other in self.machines.by_index(_BY_NAME, machine.name):
            if other.uid != machine.uid and (
                other.spec.provider_id or objects.is_older(other, machine)
            ):
                return f"the machine {key_of(other)} has this name, too; delete one of the two"
        if node is None:
            return ""
        # The Node of a rented host may be its own, whose status was lost.
        is_mac = node.metadata.labels.get(labels.OS, labels.DARWIN) == labels.DARWIN
        scheme = node.spec.provider_id.partition("://")[0]
        if is_mac and scheme in {"", names.PROVIDER_ID_SCHEME}:
            return ""
        whose = node.spec.provider_id or "no Mac"
        return f"there is a Node {machine.name} already, which is {whose}; delete the machine, or the Node"
