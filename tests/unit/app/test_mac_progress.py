"""What the screen of `bramley up` learns about managed Macs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bramley.api.core import Node, NodeCondition, NodeStatus
from bramley.api.mac_host import MacHost, MacHostSpec
from bramley.api.mac_status import MachineCondition, MacStatus
from bramley.api.meta import ObjectMeta
from bramley.app.mac_progress import MacProgress
from bramley.app.up import MacFailed, MacReady, MacStep, Progress
from bramley.runtime.keys import Key
from tests import virtual_time


@dataclass
class Informer:
    """Objects by name, and the handlers of their changes; it is its own cache."""

    objects: dict[str, Any] = field(default_factory=dict)
    handlers: list[Any] = field(default_factory=list)

    @property
    def cache(self) -> Informer:
        return self

    def find(self, key: Key) -> Any:
        return self.objects.get(key.name)

    def all(self) -> list[Any]:
        return [*self.objects.values()]

    def on_change(self, handler: Any) -> None:
        self.handlers.append(handler)

    def put(self, new: Any) -> None:
        old, self.objects[new.name] = self.objects.get(new.name), new
        for handler in self.handlers:
            handler(Key("", new.name), old, new)


@dataclass
class Manager:
    """A manager with the informers of one kind each."""

    informers: dict[type[Any], Informer] = field(default_factory=dict)

    def informer(self, kind: type[Any]) -> Informer:
        return self.informers.setdefault(kind, Informer())


def a_host(
    *,
    step: str = "",
    status: Any = "False",
    reason: str = "",
    text: str = "",
    severity: Any = "Info",
) -> MacHost:
    ready = MachineCondition(type="Ready", status=status, reason=reason, message=text, severity=severity)  # fmt: skip
    spec = MacHostSpec(address="10.0.0.5", credentials_secret_name="x")
    return MacHost(metadata=ObjectMeta(name="mac-1"), spec=spec, status=MacStatus(step=step, conditions=[ready]))  # fmt: skip


def a_node(age: timedelta) -> Node:
    beat = virtual_time.clock().now() - age
    ready = NodeCondition(type="Ready", status="True", last_heartbeat_time=beat)
    return Node(metadata=ObjectMeta(name="mac-1"), status=NodeStatus(conditions=[ready]))


async def test_steps_and_problems_are_reported_once() -> None:
    reported: list[Progress] = []
    manager: Any = Manager()
    MacProgress(reported.append, virtual_time.clock()).watch(manager)
    hosts = manager.informer(MacHost)

    for host in (
        a_host(step="tart (10/26)"),
        a_host(step="tart (10/26)"),
        a_host(reason="NodeNotReady", text="it starts", severity="Warning"),
        a_host(reason="BootstrapFailed", text="no route", severity="Warning"),
        a_host(reason="BootstrapFailed", text="no route", severity="Warning"),
    ):
        hosts.put(host)

    assert reported == [
        MacStep("mac-1", "tart (10/26)"),
        MacStep("mac-1", "it starts"),
        MacFailed("mac-1", "no route"),
    ]


async def test_mac_is_ready_by_a_heartbeat_of_this_start() -> None:
    reported: list[Progress] = []
    manager: Any = Manager()
    MacProgress(reported.append, virtual_time.clock()).watch(manager)

    manager.informer(Node).put(a_node(timedelta(minutes=1)))
    manager.informer(MacHost).put(a_host(status="True"))
    assert reported == []
    manager.informer(Node).put(a_node(timedelta()))
    manager.informer(Node).put(a_node(timedelta()))

    assert reported == [MacReady("mac-1", timedelta())]
