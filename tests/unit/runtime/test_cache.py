from __future__ import annotations

import pytest

from bramley.base import errors
from bramley.runtime.cache import Cache
from bramley.runtime.keys import Key, key_of
from tests.unit.runtime.fake_api import Thing, a_thing


def a_cache(*things: Thing) -> Cache[Thing]:
    cache = Cache(Thing)
    for obj in things:
        cache.put(key_of(obj), obj)
    return cache


def test_objects_come_in_the_order_of_their_keys() -> None:
    cache = a_cache(a_thing("b"), a_thing("a"), a_thing("c"))

    assert [obj.name for obj in cache.all()] == ["a", "b", "c"]
    cache.remove(Key("ns", "b"))
    assert [obj.name for obj in cache.all(namespace="ns")] == ["a", "c"]
    assert cache.all(namespace="other") == []


def test_get_fails_and_find_does_not() -> None:
    cache = a_cache(a_thing("a"))

    assert cache.get("a", namespace="ns") == a_thing("a")
    assert cache.find(Key("ns", "b")) is None
    with pytest.raises(errors.NotFound, match="no Thing ns/b"):
        cache.get("b", namespace="ns")


def test_index_follows_every_change() -> None:
    cache = a_cache(a_thing("early", 1))
    cache.index("by value", lambda obj: [obj.spec.value])

    cache.put(Key("ns", "a"), a_thing("a", 1))
    cache.put(Key("ns", "b"), a_thing("b", 2))
    cache.put(Key("ns", "a"), a_thing("a", 2))

    assert [obj.name for obj in cache.by_index("by value", 1)] == ["early"]
    assert [obj.name for obj in cache.by_index("by value", 2)] == ["a", "b"]
    cache.remove(Key("ns", "b"))
    assert [obj.name for obj in cache.by_index("by value", 2)] == ["a"]
    assert cache.by_index("by value", 3) == []


def test_index_may_give_many_values_or_none() -> None:
    cache = a_cache()
    cache.index("by label", lambda obj: obj.metadata.labels.items())

    cache.put(Key("ns", "a"), a_thing("a", labels={"x": "1", "y": "2"}))
    cache.put(Key("ns", "b"), a_thing("b"))

    assert [obj.name for obj in cache.by_index("by label", ("y", "2"))] == ["a"]
    assert cache.by_index("by label", ("x", "2")) == []
