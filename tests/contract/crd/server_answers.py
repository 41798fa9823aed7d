"""Sends every recorded request to a server again and returns the tables with its answers."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

from tests.contract.crd import real_server
from tests.contract.crd.real_server import Call, Json
from tools.kube import probe
from tools.kube.control_plane import RealCluster


@contextmanager
def caller(cluster: RealCluster) -> Iterator[Call]:
    """Yield a function that sends one request to the real server as its admin."""
    address = urlsplit(cluster.server)
    context: ssl.SSLContext = probe.admin_context(cluster.pki)
    assert address.hostname
    connection = http.client.HTTPSConnection(
        address.hostname, address.port, timeout=180, context=context
    )

    def call(method: str, path: str, body: Json | None) -> tuple[int, Json]:
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        # A path that is not served yet is answered in plain text.
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(content) if is_json else {}

    with closing(connection):
        yield call


def definitions(call: Call, table: list[Json]) -> list[Json]:
    return [
        {"schema": one["schema"], "causes": real_server.judge_definition(call, one["schema"])}
        for one in table
    ]


def objects(call: Call, table: Json) -> Json:
    real_server.install(call, table["schema"], "things")
    try:
        cases = [
            {"spec": one["spec"], **real_server.judge_object(call, one["spec"], "things")}
            for one in table["cases"]
        ]
    finally:
        real_server.remove(call, "things")
    return {"schema": table["schema"], "cases": cases}


def updates(call: Call, table: Json) -> Json:
    real_server.install(call, table["schema"], "changes")
    try:
        cases = [_updated(call, one, "changes") for one in table["cases"]]
    finally:
        real_server.remove(call, "changes")
    return {"schema": table["schema"], "cases": cases}


def ratcheting(call: Call, table: Json) -> Json:
    real_server.install(call, table["schema"], "ratchets")
    try:
        real_server.create(call, table["before"], "ratchets")
        real_server.tighten(call, table["tighter"], "ratchets", table["before"])
        cases = [_kept(call, one, table["before"]) for one in table["cases"]]
    finally:
        real_server.remove_object(call, "ratchets")
        real_server.remove(call, "ratchets")
    return {**table, "cases": cases}


def _updated(call: Call, case: Json, plural: str) -> Json:
    real_server.create(call, case["before"], plural)
    answer = real_server.judge_change(call, case["after"], plural)
    real_server.remove_object(call, plural)
    return {"before": case["before"], "after": case["after"], **answer}


def _kept(call: Call, case: Json, before: Any) -> Json:
    after = {**before, **case["change"]}
    answer = real_server.judge_change(call, after, "ratchets")
    return {"change": case["change"], **answer}
