"""An embedded API in memory under virtual time, called directly through ASGI: no socket, no client library in between."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.auth.bearer_tokens import User
from bramley.apiserver.http.exchange import Message, Send
from bramley.apiserver.kinds import builtin_kinds
from bramley.apiserver.nodes.usage import Kubelets
from bramley.apiserver.server import app
from bramley.apiserver.store.settings import Settings as StoreSettings
from bramley.apiserver.store.store import Store
from tests import virtual_time

Json = dict[str, Any]

TOKEN = "let-me-in"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
ADMIN = User(name="admin", groups=("system:masters",))


@dataclass(frozen=True)
class Reply:
    """One answer."""

    code: int
    body: bytes
    headers: list[tuple[str, str]]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def name(self) -> str:
        return str(self.json["metadata"]["name"])

    @property
    def version(self) -> str:
        return str(self.json["metadata"]["resourceVersion"])

    @property
    def message(self) -> str:
        return str(self.json["message"])

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.json["items"]]

    @property
    def causes(self) -> list[tuple[str, str]]:
        return [(cause["field"], cause["reason"]) for cause in self.json["details"]["causes"]]

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


@dataclass
class Watcher:
    """One open watch; `events` are those that came so far."""

    code: int = 0
    chunks: list[bytes] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    paused: asyncio.Event | None = None

    @property
    def events(self) -> list[Json]:
        return [json.loads(line) for line in b"".join(self.chunks).splitlines()]

    @property
    def seen(self) -> list[tuple[str, str]]:
        """The types and names of the events so far, bookmarks left out."""
        return [
            (event["type"], event["object"]["metadata"]["name"])
            for event in self.events
            if event["type"] in {"ADDED", "MODIFIED", "DELETED"}
        ]

    @property
    def bookmarks(self) -> list[int]:
        found = [event["object"] for event in self.events if event["type"] == "BOOKMARK"]
        return [int(each["metadata"]["resourceVersion"]) for each in found]

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.code = message["status"]
            self.started.set()
            return
        if self.paused is not None:
            await self.paused.wait()
        if message.get("body"):
            self.chunks.append(message["body"])

    async def receive(self) -> Message:
        if not self.leave.is_set():
            await self.leave.wait()
        return {"type": "http.disconnect"}


class World:
    """The application, its store and its clock."""

    def __init__(self, store: Store, settings: Settings, nodes: Kubelets | None = None) -> None:
        self.store = store
        # Further tokens, and whose they are.
        self.users: dict[str, str] = {}
        self.is_admin_known = True
        self.catalog = builtin_kinds.catalog()
        self.app = app.build(
            store=store,
            catalog=self.catalog,
            authenticate=self._identify,
            clock=virtual_time.clock(),
            settings=settings,
            rng=random.Random(1),
            nodes=nodes,
        )

    def _identify(self, token: str | None) -> User | None:
        if token in self.users:
            return User(self.users[token])
        return ADMIN if token == TOKEN and self.is_admin_known else None

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str | None = None,
        accept: str = "application/json",
        token: str | None = TOKEN,
        acting: str = "",
        groups: tuple[str, ...] = (),
        headers: tuple[tuple[str, str], ...] = (),
    ) -> Reply:
        """Send one request and return the whole answer; `acting` and `groups` say whom the token's owner acts for."""
        data = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        scope = self.scope(method, path, content_type=content_type, accept=accept, token=token)
        user = (("impersonate-user", acting),) if acting else ()
        further = (*headers, *user, *(("impersonate-group", group) for group in groups))
        scope["headers"] += [(key.encode(), value.encode()) for key, value in further]
        await self.app(scope, receive, send)
        answered = [(key.decode(), value.decode()) for key, value in sent[0]["headers"]]
        whole = b"".join(message.get("body", b"") for message in sent[1:])
        return Reply(sent[0]["status"], whole, answered)

    def scope(
        self,
        method: str,
        path: str,
        *,
        content_type: str | None = None,
        accept: str = "application/json",
        token: str | None = TOKEN,
    ) -> Json:
        named = {
            "accept": accept,
            "content-type": content_type,
            "authorization": token and f"Bearer {token}",
        }
        headers = [(key.encode(), value.encode()) for key, value in named.items() if value]
        path, _, query = path.partition("?")
        return {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": headers,
            "root_path": "",
        }

    async def get(self, path: str) -> Reply:
        return await self.request("GET", path)

    async def create(self, path: str, body: Json) -> Reply:
        reply = await self.request("POST", path, body)
        assert reply.code == 201, reply.body
        return reply

    async def merge(self, path: str, body: Json) -> Reply:
        return await self.request("PATCH", path, body, content_type=MERGE)

    async def delete(self, path: str, body: Json | None = None) -> Reply:
        return await self.request("DELETE", path, body)

    @asynccontextmanager
    async def watching(
        self, path: str, *, accept: str = "application/json", token: str = TOKEN
    ) -> AsyncIterator[Watcher]:
        """Open a watch; leaving the block ends it as a client does that goes away."""
        watcher = Watcher()
        send: Send = watcher.take
        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                self.app(self.scope("GET", path, accept=accept, token=token), watcher.receive, send)
            )
            task.add_done_callback(lambda _: watcher.ended.set())
            await watcher.started.wait()
            try:
                yield watcher
            finally:
                watcher.leave.set()


@asynccontextmanager
async def a_world(
    settings: Settings | None = None,
    store: StoreSettings | None = None,
    nodes: Kubelets | None = None,
) -> AsyncIterator[World]:
    """Give a fresh world with the namespace `t`."""
    async with Store.in_memory(store, clock=virtual_time.clock()) as opened:
        world = World(opened, settings or Settings(), nodes)
        await world.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        yield world


CONFIG_MAPS = "/api/v1/namespaces/t/configmaps"
PODS = "/api/v1/namespaces/t/pods"
WIDGETS = "/apis/example.com/v1/namespaces/t/widgets"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def a_config_map(name: str, **labels: str) -> Json:
    return {"metadata": {"name": name, "labels": labels}, "data": {"key": "value"}}


def a_pod(name: str, **spec: Any) -> Json:
    containers = [{"name": "vm", "image": "image"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def a_widget(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"color": "red", **spec},
    }


def widget_crd() -> Json:
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}, "scale": scale},
        "selectableFields": [{"jsonPath": ".spec.color"}],
        "schema": {"openAPIV3Schema": _widget_schema()},
    }
    names = {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "shortNames": ["wd"],
        "categories": ["all"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }


def _widget_schema() -> Json:
    spec = {
        "color": {"type": "string", "enum": ["red", "blue"]},
        "replicas": {"type": "integer", "minimum": 0, "default": 1},
        "tags": {"type": "array", "items": {"type": "string"}},
    }
    status = {
        "replicas": {"type": "integer"},
        "selector": {"type": "string"},
        "note": {"type": "string"},
    }
    return {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "required": ["color"], "properties": spec},
            "status": {"type": "object", "properties": status},
        },
    }
