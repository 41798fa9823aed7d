"""Whether real time allows a chain: a moment for every link that no look contradicts.

A link happened after its call and after each look at an older state began; before its return and before each look at its own
state ended. Since the links are in a fixed order, taking the earliest moment each time is exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.history_checker.chains import Chain, Link
from tests.history_checker.history import ABSENT, NEVER, History, Read, Write


def breaches(chain: Chain, looks: list[Read], writes: list[Write]) -> Iterator[str]:
    """Say which looks and refusals no moment explains."""
    links = _bounded(chain.links, looks)
    place = {link.state: index for index, link in enumerate(links) if link.state != ABSENT}
    for look in looks:
        if look.rv != ABSENT and look.rv not in place:
            yield f"{chain.key}: revision {look.rv} was read, but nobody wrote it"
        elif look.rv == ABSENT and not _was(links, look.called, look.returned, absent=True):
            yield f"{chain.key}: was missing at {look.called:.3f} though a write was acknowledged"
    for write in writes:
        if write.outcome == "refused" and not _is_justified(links, place, write):
            yield f"{chain.key}: a write for revision {write.expected} was refused, but that was the newest"
    yield from (f"{chain.key}: {text}" for text in _without_moment(links))


def looks_at(history: History) -> defaultdict[str, list[Read]]:
    """Return all looks at each object: reads, lists, which look at everything, and watch events."""
    looks: defaultdict[str, list[Read]] = defaultdict(list)
    for read in history.reads:
        looks[read.key].append(read)
    keys = history.keys()
    for listing in history.listings:
        for key in keys:
            rv, value = listing.states.get(key, (ABSENT, None))
            looks[key].append(
                Read(key=key, called=listing.called, returned=listing.returned, rv=rv, value=value)
            )
    for stream in history.streams:
        for event in stream.events:
            # An event says when its state had come at the latest, and nothing about when it still stood.
            rv, key, value = event.fact
            if value is not None:
                looks[key].append(Read(key=key, called=0.0, returned=event.at, rv=rv, value=value))
    return looks


def _bounded(links: list[Link], looks: list[Read]) -> list[Link]:
    """Narrow the moments of links by the looks at their states."""
    place = {link.state: index for index, link in enumerate(links) if link.state != ABSENT}
    for look in looks:
        index = place.get(look.rv)
        if index is None:
            continue
        links[index].latest = min(links[index].latest, look.returned)
        if index + 1 < len(links):
            links[index + 1].earliest = max(links[index + 1].earliest, look.called)
    return links


def _without_moment(links: list[Link]) -> Iterator[str]:
    moment = 0.0
    for link in links:
        moment = max(moment, link.earliest)
        if moment > link.latest:
            yield f"revision {link.rv} was seen or acknowledged, and an older state after that"
            return


def _was(links: list[Link], called: float, returned: float, *, absent: bool) -> bool:
    """Tell whether the object can have been absent, or present, at some moment of a call."""
    before = [Link(ABSENT, ABSENT, None, 0.0, 0.0), *links]
    for index, link in enumerate(before):
        left = before[index + 1].latest if index + 1 < len(before) else NEVER
        if (link.state == ABSENT) == absent and link.earliest <= returned and left >= called:
            return True
    return False


def _is_justified(links: list[Link], place: dict[int, int], write: Write) -> bool:
    """Tell whether the state that a refused write asked for can have been another one."""
    if write.expected == ABSENT:
        return _was(links, write.called, write.returned, absent=False)
    index = place.get(write.expected)
    if index is None:
        return True
    return index + 1 < len(links) and links[index + 1].earliest <= write.returned
