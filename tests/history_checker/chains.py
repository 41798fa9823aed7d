"""Each object's history as one chain of compare-and-set writes.

Every successful write names the state that it replaced, so the links of an object stand in the order of revisions. A write of
unknown outcome is a link if a client observed its value; a removal of unknown outcome also if the chain cannot be closed without it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.history_checker.history import ABSENT, NEVER, Fact, History, Write


@dataclass(slots=True)
class Link:
    """One state of an object: what it replaced, and between which moments it must have come to be."""

    rv: int
    expected: int
    value: str | None
    earliest: float
    latest: float

    @property
    def state(self) -> int:
        """Return the revision that readers see after this link."""
        return ABSENT if self.value is None else self.rv


@dataclass(slots=True)
class Chain:
    """All links of one object, and what does not fit."""

    key: str
    links: list[Link]
    breaches: list[str]


def chains(history: History) -> Iterator[Chain]:
    """Return the chain of every object."""
    facts: defaultdict[str, set[Fact]] = defaultdict(set)
    writes: defaultdict[str, list[Write]] = defaultdict(list)
    for fact in history.facts():
        facts[fact.key].add(fact)
    for write in history.writes:
        writes[write.key].append(write)
    for key in sorted(history.keys()):
        yield _chain(key, writes[key], sorted(facts[key], key=lambda fact: fact.rv))


def _chain(key: str, writes: Iterable[Write], facts: list[Fact]) -> Chain:
    certain: list[Link] = []
    doubtful: dict[int, Link] = {}
    for write in sorted(writes, key=lambda write: write.called):
        rv = _revision(write, facts)
        if rv is not None:
            certain.append(_link(write, rv))
        elif write.outcome == "acknowledged":
            certain.append(_link(write, write.expected))
        elif write.outcome == "unknown" and write.value is None:
            doubtful.setdefault(write.expected, _link(write, write.expected))
    chain = Chain(key, [], [])
    _join(chain, _without_twins(certain), doubtful)
    return chain


def _revision(write: Write, facts: list[Fact]) -> int | None:
    """Return the revision of a write that took effect, from its response or from what other clients observed."""
    if write.outcome == "refused":
        return None
    if write.rv is not None:
        return write.rv
    if write.value is not None:
        return next((fact.rv for fact in facts if fact.value == write.value), None)
    following = bisect_right(facts, write.expected, key=lambda fact: fact.rv)
    if following < len(facts) and facts[following].value is None:
        return facts[following].rv
    return None


def _link(write: Write, rv: int) -> Link:
    latest = write.returned if write.outcome == "acknowledged" else NEVER
    return Link(rv, write.expected, write.value, write.called, latest)


def _without_twins(links: list[Link]) -> list[Link]:
    """Keep one of several removals of one state: at most one of them can be the one that was seen."""
    links.sort(key=lambda link: (link.rv, link.value is None, link.latest))
    kept: list[Link] = []
    for link in links:
        twin = kept and kept[-1].rv == link.rv and kept[-1].value is link.value is None
        if not (twin and link.latest == NEVER):
            kept.append(link)
    return kept


def _join(chain: Chain, links: list[Link], doubtful: dict[int, Link]) -> None:
    state = ABSENT
    for link in links:
        if link.expected == ABSENT != state and state in doubtful:
            chain.links.append(doubtful[state])
            state = ABSENT
        if link.expected != state:
            chain.breaches.append(
                f"{chain.key}: revision {link.rv} ({link.value!r}) was made for {link.expected}, "
                f"but replaced {state}"
            )
        chain.links.append(link)
        state = link.state
    if state in doubtful:
        # It may have happened after everything that was observed; the reads show whether it must have.
        chain.links.append(doubtful[state])
