"""Write what a real server publishes: `python -m tests.unit.apiserver.published.record KUBECONFIG`.

Recorded are its discovery in one document, and of its OpenAPI documents the schemas of our custom kind and, of all built-in
kinds, which schemas a version's document has.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from bramley.kube import config_loader
from bramley.kube.http import HttpTransport
from bramley.kube.transport import Request

HERE = Path(__file__).parent
RECORDED = HERE / "recorded.json"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
GROUP = "published.example.com"

Json = dict[str, Any]


def definition() -> Json:
    """Return the definition of the custom kind."""
    recorded: Json = yaml.safe_load((HERE / "gizmos.yaml").read_text())
    return recorded


async def read_json(transport: HttpTransport, path: str, accept: str = "application/json") -> Json:
    """Return what the server answers."""
    answer: Json = json.loads((await transport.send(Request("GET", path, accept=accept))).body)
    return answer


async def installed(transport: HttpTransport) -> None:
    """Install the definition and wait until everything about it is published."""
    body = json.dumps(definition()).encode()
    await transport.send(Request("POST", CRDS, body=body, content_type="application/json"))
    async with asyncio.timeout(60):
        while f"apis/{GROUP}/v1beta1" not in (await read_json(transport, "/openapi/v3"))["paths"]:
            await asyncio.sleep(0.5)
    await asyncio.sleep(2)


async def record(kubeconfig: Path) -> Json:
    """Return what is published."""
    transport = HttpTransport(config_loader.load(kubeconfig, environment={}))
    try:
        await installed(transport)
        roots = [await read_json(transport, path, AGGREGATED) for path in ("/api", "/apis")]
        paths = (await read_json(transport, "/openapi/v3"))["paths"]
        versions = [path for path in paths if path == "api/v1" or path.startswith("apis/")]
        versions = [path for path in versions if path == "api/v1" or path.count("/") == 2]
        documents = {path: await read_json(transport, f"/openapi/v3/{path}") for path in versions}
    finally:
        await transport.close()
    own = {path: each for path, each in documents.items() if GROUP in path}
    return {
        "discovery": [group for root in roots for group in root["items"]],
        "custom": {path: each["components"]["schemas"] for path, each in own.items()},
        "operations": {path: operations(each) for path, each in documents.items()},
        "schemas": {
            path: sorted(each["components"]["schemas"]) for path, each in documents.items()
        },
    }


def kind_of(operation: Json) -> str:
    """Return the kind that an operation is about."""
    kind = operation.get("x-kubernetes-group-version-kind", {})
    return "/".join(kind.get(part, "") for part in ("group", "version", "kind"))


def operations(document: Json) -> Json:
    """Return the methods of each path, with the kind that each is about."""
    return {
        path: {method: kind_of(each) for method, each in methods.items() if method != "parameters"}
        for path, methods in document["paths"].items()
    }


def main() -> None:
    """Write the file."""
    recorded = asyncio.run(record(Path(sys.argv[1])))
    parts = [f'"{name}": {json.dumps(part, sort_keys=True)}' for name, part in recorded.items()]
    RECORDED.write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main()
