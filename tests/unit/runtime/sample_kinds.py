"""The kinds of the runtime's tests: one that is reconciled and one that it may own."""

from __future__ import annotations

from typing import Any, ClassVar

from bramley.api.meta import Condition, Fields, Object, ObjectMeta, Resource


class ThingSpec(Fields, frozen=True, kw_only=True):
    value: int = 0


class ThingStatus(Fields, frozen=True, kw_only=True):
    seen: int = 0
    observed_generation: int = 0
    conditions: list[Condition] = []


class Thing(Object, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource(
        "test.bramley.dev", "v1", "Thing", "things", namespaced=True
    )

    spec: ThingSpec = ThingSpec()
    status: ThingStatus = ThingStatus()


class Part(Object, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource(
        "test.bramley.dev", "v1", "Part", "parts", namespaced=True
    )


def a_thing(name: str, value: int = 0, **metadata: Any) -> Thing:
    meta = ObjectMeta(name=name, namespace="ns", **metadata)
    return Thing(metadata=meta, spec=ThingSpec(value=value))
