"""Whether real time allows a chain: a moment for every link that no read contradicts.

A link happened after its call and after each read of an older state began; before its return and before each read of its own
state ended. Since the links are in a fixed order, taking the earliest moment each time is exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.history_checker.chains import Chain, Link
from tests.history_checker.history import ABSENT, NEVER, History, Read, Write


def breaches(chain: Chain, reads: list[Read], writes: list[Write]) -> Iterator[str]:
    """Yield the reads and refusals that no moment explains."""
    links = _bounded(chain.links, reads)
    place = {link.state: index for index, link in enumerate(links) if link.state != ABSENT}
    for read in reads:
        if read.rv != ABSENT and read.rv not in place:
            yield f"{chain.key}: revision {read.rv} was read, but no client wrote it"
        elif read.rv == ABSENT and not _was(links, read.called, read.returned, absent=True):
            yield f"{chain.key}: was missing at {read.called:.3f} though a write was acknowledged"
    for write in writes:
        if write.outcome == "refused" and not _is_justified(links, place, write):
            yield f"{chain.key}: a write for revision {write.expected} was refused, but that was the newest"
    yield from (f"{chain.key}: {text}" for text in _without_moment(links))


def reads_of(history: History) -> defaultdict[str, list[Read]]:
    """Return all reads of each object: single reads, lists, which read every object, and watch events."""
    reads: defaultdict[str, list[Read]] = defaultdict(list)
    for read in history.reads:
        reads[read.key].append(read)
    keys = history.keys()
    for listing in history.listings:
        for key in keys:
            rv, value = listing.states.get(key, (ABSENT, None))
            reads[key].append(
                Read(key=key, called=listing.called, returned=listing.returned, rv=rv, value=value)
            )
    for stream in history.streams:
        for event in stream.events:
            # An event shows the latest moment at which its state began, and nothing about when it ended.
            rv, key, value = event.fact
            if value is not None:
                reads[key].append(Read(key=key, called=0.0, returned=event.at, rv=rv, value=value))
    return reads


def _bounded(links: list[Link], reads: list[Read]) -> list[Link]:
    """Narrow the moments of links by the reads of their states."""
    place = {link.state: index for index, link in enumerate(links) if link.state != ABSENT}
    for read in reads:
        index = place.get(read.rv)
        if index is None:
            continue
        links[index].latest = min(links[index].latest, read.returned)
        if index + 1 < len(links):
            links[index + 1].earliest = max(links[index + 1].earliest, read.called)
    return links


def _without_moment(links: list[Link]) -> Iterator[str]:
    moment = 0.0
    for link in links:
        moment = max(moment, link.earliest)
        if moment > link.latest:
            yield f"revision {link.rv} was seen or acknowledged, and an older state after that"
            return


def _was(links: list[Link], called: float, returned: float, *, absent: bool) -> bool:
    """Return whether the object can have been absent, or present, at some moment of a call."""
    before = [Link(ABSENT, ABSENT, None, 0.0, 0.0), *links]
    for index, link in enumerate(before):
        left = before[index + 1].latest if index + 1 < len(before) else NEVER
        if (link.state == ABSENT) == absent and link.earliest <= returned and left >= called:
            return True
    return False


def _is_justified(links: list[Link], place: dict[int, int], write: Write) -> bool:
    """Return whether the state can have differed from the one that a refused write expected."""
    if write.expected == ABSENT:
        return _was(links, write.called, write.returned, absent=False)
    index = place.get(write.expected)
    if index is None:
        return True
    return index + 1 < len(links) and links[index + 1].earliest <= write.returned
