"""Scaleway's own SDK as a client of the simulated Scaleway, in process: a call is answered before it returns, also under virtual time."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from scaleway.applesilicon.v1alpha1 import (
    ApplesiliconV1Alpha1API,
    ApplesiliconV1Alpha1PrivateNetworkAPI,
)
from scaleway.iam.v1alpha1 import IamV1Alpha1API
from scaleway.vpc.v2 import VpcV2API
from scaleway_core.api import ScalewayException
from scaleway_core.client import Client

from bramley.sim.scaleway.application import ApiRequest, respond
from bramley.sim.scaleway.catalog import ZONES
from bramley.sim.scaleway.macs import ModelMacs
from bramley.sim.scaleway.records import Server
from bramley.sim.scaleway.scaleway import (
    ACCESS_KEY,
    PROJECT,
    SECRET_KEY,
    Settings,
    SimulatedScaleway,
)
from tests import virtual_time

ZONE = ZONES[0]
OTHER_PROJECT = "44444444-4444-4444-8444-444444444444"
OTHER_KEY = "55555555-5555-4555-8555-555555555555"
WRONG_KEY = "66666666-6666-4666-8666-666666666666"
UNKNOWN = "77777777-7777-4777-8777-777777777777"


def public_key(comment: str = "fleet") -> str:
    blob = b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20" + comment.encode().ljust(32, b"-")
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} {comment}"


def client(url: str, secret_key: str = SECRET_KEY, project_id: str | None = None) -> Client:
    return Client(
        access_key=ACCESS_KEY,
        secret_key=secret_key,
        api_url=url,
        default_project_id=project_id,
        default_zone=ZONE,
        default_region="fr-par",
    )


_APIS: tuple[Any, ...] = (
    ApplesiliconV1Alpha1API,
    IamV1Alpha1API,
    VpcV2API,
    ApplesiliconV1Alpha1PrivateNetworkAPI,
)


@dataclass(frozen=True, slots=True)
class Sdk:
    """The parts of the SDK that are used, for one key."""

    hosts: Any
    iam: Any
    vpc: Any
    networks: Any

    @classmethod
    def over_http(cls, url: str, **options: Any) -> Sdk:
        made = client(url, **options)
        return cls(*(each(made) for each in _APIS))

    @classmethod
    def in_process(cls, scaleway: SimulatedScaleway, **options: Any) -> Sdk:
        made = client("http://in-process.invalid", **options)

        def sent(
            method: str,
            path: str,
            params: Mapping[str, Any] | None = None,
            headers: Mapping[str, str] | None = None,
            body: Any = None,
        ) -> requests.Response:
            query = {key: str(value) for key, value in (params or {}).items() if value is not None}
            fault = scaleway.faults.take(method, path)
            raw = json.dumps(body or {}).encode()
            given = ApiRequest(method, path, query, made.secret_key, raw)
            answered = respond(scaleway, given, fault)
            response = requests.Response()
            response.status_code, response._content = answered.status, answered.body
            response.headers.update(answered.headers)
            return response

        apis = [each(made) for each in _APIS]
        for each in apis:
            each._request = sent
        return cls(*apis)

    def get(self, server: Server) -> Any:
        return self.hosts.get_server(server_id=server.id)


@dataclass(frozen=True, slots=True)
class Peer:
    """A simulated Scaleway with its Macs, and the SDK with the key of its project."""

    scaleway: SimulatedScaleway
    macs: ModelMacs
    sdk: Sdk

    def other(self, **options: Any) -> Sdk:
        return Sdk.in_process(self.scaleway, **options)


@asynccontextmanager
async def peer(folder: Path, **settings: Any) -> AsyncIterator[Peer]:
    clock = virtual_time.clock()
    macs = ModelMacs(folder, clock=clock)
    scaleway = SimulatedScaleway(macs, clock=clock, settings=Settings(**settings))
    async with scaleway.running():
        yield Peer(scaleway, macs, Sdk.in_process(scaleway, project_id=PROJECT))


def refusal_of(raised: pytest.ExceptionInfo[ScalewayException]) -> dict[str, Any]:
    """Return the status and the body of a refusal, without its message."""
    body: dict[str, Any] = raised.value.response.json()
    body.pop("message")
    return {"status": raised.value.status_code, **body}
