"""Informer, queue and workers against a model, under virtual time, while everything around them fails.

The model is the scripted server's own state. At rest the cache equals it, every key was reconciled after its last change with
a view at least that new, never did two passes over one key overlap, and no view went back in time. Resyncs are off, so nothing hides a lost wake-up.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from prometheus_client import CollectorRegistry

from bramley.api.meta import ObjectMeta, OwnerReference
from bramley.base import errors
from bramley.runtime.controller import Controller, ControllerSettings
from bramley.runtime.keys import Key, key_of
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from tests.unit import example_counts
from tests.unit.runtime.fake_api import FakeApi, Part, Thing, a_thing
from tests.unit.runtime.informer_harness import value
from tests.virtual_time import VirtualClock, VirtualTimeLoop

NAMES = ["a", "b", "c"]
SOME_NAME = st.sampled_from(NAMES)
VALUES = st.integers(0, 9)
WHICH = st.integers(0, 2)
A_MOMENT = st.sampled_from([0.0, 0.001, 1.0])
NEVER = timedelta(days=1000)
PASSING = [
    errors.ApiUnavailable("away"),
    errors.TimedOut("slow"),
    errors.RateLimited("busy", after=timedelta(seconds=7)),
    errors.Gone("too old"),
]


class View(NamedTuple):
    """What a reconcile can see: its object, and the versions of the parts that it owns."""

    obj: Thing | None = None
    parts: frozenset[tuple[str, str]] = frozenset()


def view(name: str, obj: Thing | None, parts: list[Part]) -> View:
    owned = (part for part in parts if part.metadata.owner_references[0].name == name)
    return View(obj, frozenset((part.name, part.metadata.resource_version) for part in owned))


class Reconciler:
    """Takes its time, fails now and then, and writes down what it saw."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.manager: Manager | None = None
        self.last: dict[str, View] = {}
        self.busy: set[Key] = set()
        self.blocked: dict[str, asyncio.Event] = {}
        self.overlaps: list[Key] = []
        self.failed: set[str] = set()
        self.calm = False

    async def reconcile(self, obj: Thing) -> Outcome:
        key = key_of(obj)
        with self._noted(key, obj):
            if obj.name in self.blocked:
                await self.blocked[obj.name].wait()
            self.failed.add(obj.name)
            await asyncio.sleep(self.rng.choice([0, 0, 0.001, 0.5, 2]))
            outcome = Settled() if self.calm else self._fate()
            self.failed.discard(obj.name)
            return outcome

    def forget(self, key: Key) -> None:
        with self._noted(key, None):
            pass

    @contextmanager
    def _noted(self, key: Key, obj: Thing | None) -> Iterator[None]:
        assert self.manager is not None
        if key in self.busy:
            self.overlaps.append(key)
        self.busy.add(key)
        parts = self.manager.informer(Part).cache.all()
        self.last[key.name] = view(key.name, obj, parts)
        try:
            yield
        finally:
            self.busy.discard(key)

    def _fate(self) -> Outcome:
        match self.rng.randrange(8):
            case 0:
                raise errors.ApiUnavailable("away")
            case 1:
                raise ZeroDivisionError
            case 2:
                raise errors.Conflict("stale")
            case 3:
                return CheckAgain(timedelta(seconds=self.rng.choice([0.5, 30])), "not yet")
            case _:
                return Settled()


class FollowingAServer(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 9999), workers=st.integers(2, 4), page=st.integers(1, 3))
    def start(self, seed: int, workers: int, page: int) -> None:
        self.runner = asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(seed=seed))
        loop = self.runner.get_loop()
        rng = random.Random(seed)
        self.server = FakeApi(page_size=page)
        self.reconciler = Reconciler(rng)
        self.manager = Manager(
            self.server,
            clock=VirtualClock(loop),
            rng=rng,
            registry=CollectorRegistry(),
            settings=ManagerSettings(tune_gc=False),
        )
        self.reconciler.manager = self.manager
        config = ControllerSettings(workers=workers, resync=NEVER, deadline=NEVER)
        self.manager.add(Controller(self.reconciler, config).for_kind(Thing).owns(Part))
        self.things = self.manager.informer(Thing)
        self.parts = self.manager.informer(Part)
        self.newest: dict[Key, int] = {}
        self.backwards: list[Key] = []
        self.things.on_change(self.forwards)
        self.running = loop.create_task(self.manager.run())
        self.pass_time(1)

    def forwards(self, key: Key, _old: Thing | None, new: Thing | None) -> None:
        version = int(new.metadata.resource_version) if new else 0
        rewinds = value(self.manager.metrics, "bramley_cache_rewinds_total", kind="Thing")
        if new and version <= self.newest.get(key, 0) and not rewinds:
            self.backwards.append(key)
        self.newest[key] = max(version, self.newest.get(key, 0))

    def pass_time(self, seconds: float) -> None:
        if seconds:
            self.runner.run(asyncio.sleep(seconds))

    # What people and other controllers do.

    @rule(name=SOME_NAME, value=VALUES, wait=A_MOMENT)
    def put(self, name: str, value: int, wait: float) -> None:
        self.server.put(a_thing(name, value))
        self.pass_time(wait)

    @rule(which=WHICH, wait=A_MOMENT)
    def remove(self, which: int, wait: float) -> None:
        there = self.server.all(Thing)
        if there:
            self.server.remove(Thing, key_of(there[which % len(there)]))
        self.pass_time(wait)

    @rule(which=WHICH, value=VALUES, wait=A_MOMENT)
    def replace(self, which: int, value: int, wait: float) -> None:
        there = self.server.all(Thing)
        self.remove(which, 0.0)
        if there:
            self.put(there[which % len(there)].name, value, wait)

    @rule(part=SOME_NAME, owner=SOME_NAME, wait=A_MOMENT)
    def put_part(self, part: str, owner: str, wait: float) -> None:
        reference = OwnerReference(
            api_version="test.bramley.dev/v1", kind="Thing", name=owner, uid="x", controller=True
        )
        metadata = ObjectMeta(name=part, namespace="ns", owner_references=[reference])
        self.server.put(Part(metadata=metadata))
        self.pass_time(wait)

    @rule(name=SOME_NAME, value=VALUES, wait=A_MOMENT)
    def put_undecodable(self, name: str, value: int, wait: float) -> None:
        self.server.put_undecodable(a_thing(name, value))
        self.pass_time(wait)

    # What the server and the network do.

    @rule(fault=st.sampled_from(["disconnect", "end_watches", "silence", "compact"]))
    def inject_fault(self, fault: str) -> None:
        getattr(self.server, fault)()

    @rule(name=SOME_NAME, value=VALUES, forgotten=st.booleans())
    def put_without_watches(self, name: str, value: int, *, forgotten: bool) -> None:
        self.server.disconnect()
        self.put(name, value, 0.0)
        if forgotten:
            self.server.compact()

    @rule(which=WHICH, forgotten=st.booleans())
    def remove_without_watches(self, which: int, *, forgotten: bool) -> None:
        self.server.disconnect()
        self.remove(which, 0.0)
        if forgotten:
            self.server.compact()

    @rule(kind=st.sampled_from([Thing, Part]), count=st.integers(1, 5))
    def repeat(self, kind: type[Thing | Part], count: int) -> None:
        self.server.repeat(kind, count)

    @rule()
    def bookmark(self) -> None:
        self.server.bookmark(Thing)

    @rule(back=st.integers(1, 6))
    def answer_a_relist_with_an_old_list(self, back: int) -> None:
        self.server.stale_list = max(0, self.server.version - back)
        self.server.failures.setdefault("watch", []).append(errors.Gone("too old"))
        self.server.disconnect()

    @rule(verb=st.sampled_from(["list", "watch"]), which=st.integers(0, 3), times=st.integers(1, 3))
    def fail(self, verb: str, which: int, times: int) -> None:
        self.server.failures.setdefault(verb, []).extend([PASSING[which]] * times)

    @rule(seconds=st.sampled_from([1.0, 30.0]))
    def make_server_unavailable(self, seconds: float) -> None:
        self.server.unavailable = True
        self.pass_time(seconds)
        self.server.unavailable = False

    @rule(latency=st.sampled_from([0.01, 3.0, 500.0]))
    def be_slow(self, latency: float) -> None:
        self.server.latency = latency
        self.pass_time(10)
        self.server.latency = 0.0

    @rule(name=SOME_NAME)
    def misread(self, name: str) -> None:
        self.server.undecodable_keys.add(Key("ns", name))

    # What happens to reconciles, and time.

    @rule(name=SOME_NAME, begin=st.booleans())
    def block_or_unblock(self, name: str, *, begin: bool) -> None:
        if begin:
            self.reconciler.blocked.setdefault(name, asyncio.Event())
        else:
            self.unblock(name)

    def unblock(self, name: str) -> None:
        event = self.reconciler.blocked.pop(name, None)
        if event:
            event.set()

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.3, 1.0, 5.0, 40.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.pass_time(seconds)

    # What must hold.

    @invariant()
    def no_key_is_processed_twice_at_once(self) -> None:
        assert not self.reconciler.overlaps

    @invariant()
    def views_never_go_backwards(self) -> None:
        assert not self.backwards

    @invariant()
    def nothing_ends_the_process(self) -> None:
        assert not self.running.done(), self.running

    @rule()
    def come_to_rest(self) -> None:
        self.heal()
        self.pass_time(1200)
        things, parts = self.server.all(Thing), self.server.all(Part)
        assert things == self.things.cache.all()
        assert parts == self.parts.cache.all()
        for name in NAMES:
            expected = view(name, self.server.find(Thing, name), parts)
            assert expected == self.reconciler.last.get(name, View()), name
        assert not self.reconciler.failed & {obj.name for obj in things}
        self.reconciler.calm = False

    def heal(self) -> None:
        server = self.server
        server.stale_list = None
        server.failures.clear()
        for key in sorted(server.undecodable_keys):
            server.undecodable_keys.discard(key)
            # An object that becomes decodable does so by a change.
            if server.find(Thing, key.name):
                self.put(key.name, 1, 0.0)
        for name in list(self.reconciler.blocked):
            self.unblock(name)
        self.reconciler.calm = True

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.come_to_rest()
            self.running.cancel()
            self.runner.close()


# Shrinking a story takes minutes and a mutant needs only its death: SHRINK=1 asks for it.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)

TestFollowingAServer = FollowingAServer.TestCase
TestFollowingAServer.settings = settings(
    max_examples=example_counts.examples(100),
    stateful_step_count=25,
    deadline=None,
    phases=tuple(Phase) if os.environ.get("SHRINK") else PHASES,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
