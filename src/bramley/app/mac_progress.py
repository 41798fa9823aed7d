"""The progress of machines and MacHosts for the screen of `bramley up`, from the caches of their controllers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from bramley.api import conditions
from bramley.api.core import Node
from bramley.api.mac_host import MacHost
from bramley.api.names import conditions as types
from bramley.api.names import events
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.app.up import MacFailed, MacReady, MacStep, Progress
from bramley.base.clock import Clock
from bramley.runtime.cache import Cache
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager

AnyMac = ScalewayAppleSiliconMachine | MacHost
# A Node that is about to start is no problem yet.
_EXPECTED = frozenset({events.NODE_NOT_READY, events.NODE_MISSING})
# A machine without a host has no condition Ready yet.
_SUMMARIES = (types.READY, types.PROVISIONED)
_PROBLEMS = frozenset({"Error", "Warning"})


@dataclass(slots=True)
class MacProgress:
    """Reports each step and problem of a Mac once, and that it is Ready once its Node is, by a heartbeat of this start."""

    on_progress: Callable[[Progress], None]
    clock: Clock
    _began: float = field(init=False)
    _since: datetime = field(init=False)
    _reported: dict[str, str] = field(default_factory=dict)
    _ready: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._began = self.clock.monotonic()
        self._since = self.clock.now().replace(microsecond=0)

    def watch(self, manager: Manager) -> None:
        """Report from the informers of a manager that is about to run."""
        nodes = manager.informer(Node)
        informers = (manager.informer(ScalewayAppleSiliconMachine), manager.informer(MacHost))
        caches: list[Cache[Any]] = [each.cache for each in informers]

        def node_changed(key: Key, _: Node | None, node: Node | None) -> None:
            for mac in (each for cache in caches for each in cache.all()):
                if mac.name == key.name and node is not None:
                    self._report(mac, node)

        for informer in informers:
            informer.on_change(lambda _, old, new: self._changed(old, new, nodes.cache))
        nodes.on_change(node_changed)

    def _changed(self, old: AnyMac | None, new: AnyMac | None, nodes: Cache[Node]) -> None:
        if new is not None:
            self._report(new, nodes.find(Key("", new.name)))
        elif old is not None:
            self._ready.discard(old.name)
            self._say(old.name, "gone")

    def _report(self, mac: AnyMac, node: Node | None) -> None:
        found = (conditions.find(mac.status.conditions, each) for each in _SUMMARIES)
        ready = next(filter(None, found), None)
        if mac.deleting:
            self._say(mac.name, mac.status.step or "leaving, once its Node is drained")
        elif ready is not None and ready.type == types.READY and ready.status == "True":
            if mac.name not in self._ready and self._has_heartbeat(node):
                self._ready.add(mac.name)
                elapsed = timedelta(seconds=self.clock.monotonic() - self._began)
                self.on_progress(MacReady(mac.name, elapsed))
        elif mac.status.step:
            self._say(mac.name, mac.status.step)
        elif ready is not None and ready.message:
            is_problem = ready.severity in _PROBLEMS and ready.reason not in _EXPECTED
            self._say(mac.name, ready.message, is_problem=is_problem)

    def _say(self, name: str, text: str, *, is_problem: bool = False) -> None:
        if self._reported.get(name) == text:
            return
        self._reported[name] = text
        self.on_progress(MacFailed(name, text) if is_problem else MacStep(name, text))

    def _has_heartbeat(self, node: Node | None) -> bool:
        """Return whether a Node is Ready by a heartbeat of this start, not of an earlier one."""
        found = conditions.find(node.status.conditions, types.READY) if node else None
        beat = found and found.last_heartbeat_time
        return bool(found and found.status == "True" and beat and beat >= self._since)
