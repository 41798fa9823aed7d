"""The objects of the benchmark and the bytes that a server sends about them: pages of a list and lines of a watch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bramley.api.runner_pool import RunnerPool

OBJECTS = 10_000
EVENTS = 60_000
NAMESPACE = "bench"
OBJECT_BYTES = 900
PATH = RunnerPool.resource.path()
LAST_VERSION = OBJECTS + EVENTS


def pool(number: int, version: int) -> dict[str, Any]:
    """Return one RunnerPool of the benchmark's size, as a server would send it."""
    body = {
        "apiVersion": RunnerPool.resource.api_version,
        "kind": RunnerPool.resource.kind,
        "metadata": {
            "name": f"pool-{number:05d}",
            "namespace": NAMESPACE,
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "resourceVersion": str(version),
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"tuist.dev/managed-by": "helm", "tuist.dev/runner-pool": f"pool-{number}"},
        },
        "spec": {
            "image": f"ghcr.io/example/runner@sha256:{number:064x}",
            "fleetSelector": "bench",
            "dispatchLabel": f"macos-{number}",
            "runnerLabels": ["self-hosted", "macOS", "ARM64"],
            "replicas": version % 9,
            "autoscaling": {"enabled": True, "minWarmPoolFloor": 1, "maxReplicas": 9},
            "rollout": {"maxConcurrentPercent": 5},
        },
        "status": {"observedReplicas": version % 9, "lastReconcile": "2026-01-01T00:00:00Z"},
    }
    padding = OBJECT_BYTES - len(encoded(body)) - len('"annotations":{"note":""},')
    body["metadata"]["annotations"] = {"note": "x" * padding}  # type: ignore[index]
    return body


def encoded(body: object) -> bytes:
    """Return compact JSON."""
    return json.dumps(body, separators=(",", ":")).encode()


def page(start: int, limit: int) -> bytes:
    """Return one page of the list, with the token of the next one if there is more."""
    end = min(start + limit, OBJECTS)
    meta: dict[str, Any] = {"resourceVersion": str(OBJECTS)}
    if end < OBJECTS:
        meta["continue"] = str(end)
    head = encoded({"apiVersion": RunnerPool.resource.api_version, "kind": "RunnerPoolList"})
    items = b",".join(encoded(pool(number, number + 1)) for number in range(start, end))
    return head[:-1] + b',"metadata":' + encoded(meta) + b',"items":[' + items + b"]}"


def events(count: int) -> Iterator[bytes]:
    """Return the lines of a watch: every object changes in turn, at growing versions."""
    for step in range(count):
        body = encoded(pool(step % OBJECTS, OBJECTS + step + 1))
        yield b'{"type":"MODIFIED","object":' + body + b"}\n"
