"""What a namespace says of its own end: five conditions, each either well or with what went wrong. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from bramley.api.meta import Condition, Resource

# In the order in which they are written: the reason and the sentence for when nothing is wrong.
_WELL = MappingProxyType(
    {
        "NamespaceDeletionDiscoveryFailure": (
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        "NamespaceDeletionContentFailure": (
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
        "NamespaceFinalizersRemaining": (
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    }
)


@dataclass(slots=True)
class Emptied:
    """How far one attempt to empty a namespace came."""

    discovery: str = ""
    errors: list[str] = field(default_factory=list)
    remaining: dict[str, int] = field(default_factory=dict)
    finalizers: Counter[str] = field(default_factory=Counter)
    # For how many seconds what remains may take.
    seconds: int = 0
    # Whether all kinds were looked at; what remains is only told then.
    counted: bool = True

    def remain(self, resource: Resource, finalizers: Sequence[Iterable[str]]) -> None:
        """Note that this many objects of a kind are left, with these finalizers each."""
        self.remaining[f"{resource.plural}.{resource.group}"] = len(finalizers)
        for each in finalizers:
            self.finalizers.update(each)


def decide(old: Sequence[Condition], emptied: Emptied, *, now: datetime) -> list[Condition]:
    """Return the conditions after an attempt; those of others stay, and a status that stays keeps its time."""
    found = {each.type: each for each in old}
    wrong = dict(_wrong(emptied))
    for type, well in _WELL.items():
        reason, message = wrong.get(type, well)
        status = "True" if type in wrong else "False"
        before = found.get(type)
        same = before is not None and before.status == status
        found[type] = Condition(
            type=type,
            status="True" if status == "True" else "False",
            reason=reason,
            message=message,
            last_transition_time=before.last_transition_time
            if same and before is not None
            else now.replace(microsecond=0),
        )
    return list(found.values())


def _wrong(emptied: Emptied) -> Iterable[tuple[str, tuple[str, str]]]:
    if emptied.discovery:
        yield "NamespaceDeletionDiscoveryFailure", ("DiscoveryFailed", emptied.discovery)
    if emptied.errors:
        told = ", ".join(sorted(emptied.errors))
        message = f"Failed to delete all resource types, {len(emptied.errors)} remaining: {told}"
        yield "NamespaceDeletionContentFailure", ("ContentDeletionFailed", message)
    if emptied.counted and emptied.remaining:
        told = _told(
            f"{name} has {left} resource instances" for name, left in emptied.remaining.items()
        )
        message = f"Some resources are remaining: {told}"
        yield "NamespaceContentRemaining", ("SomeResourcesRemain", message)
    if emptied.counted and emptied.finalizers:
        told = _told(
            f"{name} in {left} resource instances" for name, left in emptied.finalizers.items()
        )
        message = f"Some content in the namespace has finalizers remaining: {told}"
        yield "NamespaceFinalizersRemaining", ("SomeFinalizersRemain", message)


def _told(each: Iterable[str]) -> str:
    return ", ".join(sorted(each))
