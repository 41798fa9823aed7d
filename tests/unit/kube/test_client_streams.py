"""Watches and logs as the client asks for them."""

from __future__ import annotations

from contextlib import aclosing
from datetime import timedelta

import pytest

from bramley.base import errors
from bramley.kube.client import Client
from tests import virtual_time
from tests.unit.kube.fake_transport import (
    Answer,
    FakeTransport,
    Widget,
    answer,
    event,
    refusal,
    widget,
)


def client(*answers: Answer) -> tuple[Client, FakeTransport]:
    transport = FakeTransport(*answers)
    return Client(transport, clock=virtual_time.clock()), transport


async def test_watch_requests_bookmarks_and_a_timeout() -> None:
    kube, transport = client([event("ADDED", widget("a"))])

    async with kube.watch(
        Widget, resource_version="7", fields="metadata.name=a", timeout=timedelta(seconds=90)
    ) as watch:
        assert [found.object.name async for found in watch] == ["a"]

    [request] = transport.requests
    assert request.path == "/apis/example.dev/v1/widgets"
    assert request.query == {
        "fieldSelector": "metadata.name=a",
        "resourceVersion": "7",
        "watch": "true",
        "timeoutSeconds": "90",
        "allowWatchBookmarks": "true",
    }


async def test_watch_of_an_expired_version_raises_gone() -> None:
    kube, transport = client(refusal(410, "Expired"))

    with pytest.raises(errors.Gone):
        async with kube.watch(Widget, resource_version="1"):
            pass

    assert transport.open == 0


async def test_silent_server_is_detected_soon_after_the_requested_timeout() -> None:
    kube, _ = client([event("ADDED", widget("a")), b"silence"])
    clock = virtual_time.clock()

    with pytest.raises(errors.TimedOut):
        async with kube.watch(Widget, timeout=timedelta(seconds=60)) as watch:
            [found async for found in watch]

    assert 60 < clock.monotonic() < 90


async def test_error_body_of_a_stream_is_bounded() -> None:
    kube, _ = client(answer(403, {"reason": "Forbidden", "message": "x" * 1_000_000}))

    with pytest.raises(errors.Forbidden) as caught:
        async with kube.watch(Widget):
            pass

    assert len(str(caught.value)) < 3000


async def test_logs_stream_and_end_with_their_generator() -> None:
    kube, transport = client([b"one\n", b"two\n", b"silence"])

    async with aclosing(kube.logs("p", "ns", container="vm", follow=True, tail=10)) as chunks:
        assert [await anext(chunks), await anext(chunks)] == [b"one\n", b"two\n"]
        assert transport.open == 1

    assert transport.open == 0
    [request] = transport.requests
    assert request.path == "/api/v1/namespaces/ns/pods/p/log"
    assert request.query == {"container": "vm", "follow": "true", "tailLines": "10"}


async def test_silent_log_without_follow_times_out() -> None:
    kube, _ = client([b"one\n", b"silence"])

    with pytest.raises(errors.TimedOut):
        [chunk async for chunk in kube.logs("p", "ns")]
