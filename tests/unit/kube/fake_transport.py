"""A transport with scripted responses that records its requests, and a small kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import ClassVar

import msgspec

from bramley.api.meta import Fields, Object, Resource
from bramley.kube.transport import Request, Response, Stream


class WidgetSpec(Fields, frozen=True, kw_only=True):
    size: int


class Widget(Object, frozen=True, kw_only=True):
    """A kind with a required field, as a bookmark does not have it."""

    resource: ClassVar[Resource] = Resource(
        "example.dev", "v1", "Widget", "widgets", namespaced=True
    )

    spec: WidgetSpec


Answer = Response | Exception | Iterable[bytes] | Callable[[Request], Response]


def answer(status: int, body: object = None, **headers: str) -> Response:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Response(status, named, msgspec.json.encode(body))


def refusal(status: int, reason: str, message: str = "", **headers: str) -> Response:
    return answer(status, {"reason": reason, "message": message, "code": status}, **headers)


def widget(name: str, *, size: object = 1, version: int = 1) -> dict[str, object]:
    place = {"name": name, "namespace": "ns", "resourceVersion": str(version)}
    return {"metadata": place, "spec": {"size": size}}


def event(type_: str, obj: object) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


class FakeTransport:
    """Returns its responses in turn, the last one again and again."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.requests: list[Request] = []
        self.times: list[float] = []
        self.open = 0

    def _next(self, request: Request) -> Answer:
        self.requests.append(request)
        self.times.append(asyncio.get_running_loop().time())
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    async def send(self, request: Request) -> Response:
        given = self._next(request)
        if isinstance(given, Exception):
            raise given
        if callable(given):
            return given(request)
        assert isinstance(given, Response)
        return given

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        given = self._next(request)
        if isinstance(given, Exception):
            raise given
        self.open += 1
        try:
            if isinstance(given, Response):
                yield Stream(given.status, given.headers, _chunks([given.body]))
            else:
                assert not callable(given)
                yield Stream(200, {}, _chunks(given))
        finally:
            self.open -= 1

    async def close(self) -> None:
        self.requests.clear()


async def _chunks(given: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in given:
        if chunk == b"silence":
            await asyncio.sleep(86_400)
        yield chunk
