"""Extract the printer columns of the built-in kinds from the empty tables of a real server.

`python -m tools.columns KUBECONFIG` asks the server that the kubeconfig names and rewrites the packaged data file. Each text
that describes a column is written once; a column is its name, type, format, priority and the number of its text.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from bramley.kube import config_loader
from bramley.kube.http import HttpTransport
from bramley.kube.transport import Request

OUT = Path(__file__).parent.parent / "src/bramley/apiserver/tables/columns.json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

Json = dict[str, Any]


async def read_json(transport: HttpTransport, path: str, accept: str) -> Json:
    """Return the response of the server."""
    response = await transport.send(Request("GET", path, accept=accept))
    answer: Json = json.loads(response.body)
    if response.status != 200:
        raise SystemExit(f"{path}: {response.status} {answer}")
    return answer


async def listable(transport: HttpTransport) -> dict[str, str]:
    """Return the path of each kind's collection, for all namespaces, by its qualified name; the preferred version wins."""
    resources: dict[str, str] = {}
    for root in ("api", "apis"):
        for group in (await read_json(transport, f"/{root}", DISCOVERY))["items"]:
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                base = "/".join(filter(None, [f"/{root}", name, version["version"]]))
                for each in version["resources"]:
                    if "list" in each["verbs"]:
                        qualified = ".".join(filter(None, [each["resource"], name]))
                        resources.setdefault(qualified, f"{base}/{each['resource']}")
    return resources


def cut(tables: dict[str, Json]) -> Json:
    """Return the columns of all kinds, and their texts apart."""
    texts: dict[str, int] = {}
    columns = {
        name: [
            [
                each["name"],
                each["type"],
                each["format"],
                each["priority"],
                texts.setdefault(each["description"], len(texts)),
            ]
            for each in table["columnDefinitions"]
        ]
        for name, table in sorted(tables.items())
    }
    return {"texts": list(texts), "columns": columns}


async def collect(kubeconfig: Path) -> Json:
    """Request the tables of everything that can be listed."""
    transport = HttpTransport(config_loader.load(kubeconfig, environment={}))
    try:
        paths = await listable(transport)
        return cut(
            {
                name: await read_json(transport, f"{path}?limit=1", TABLE)
                for name, path in paths.items()
            }
        )
    finally:
        await transport.close()


def main() -> None:
    """Write the data file."""
    found = asyncio.run(collect(Path(sys.argv[1])))
    texts = ",\n".join(f"    {json.dumps(each)}" for each in found["texts"])
    columns = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(of)}" for name, of in found["columns"].items()
    )
    OUT.write_text(f'{{\n  "texts": [\n{texts}\n  ],\n  "columns": {{\n{columns}\n  }}\n}}\n')


if __name__ == "__main__":
    main()
