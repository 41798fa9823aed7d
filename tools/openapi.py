"""Extract the schemas of the built-in kinds from a real server's OpenAPI v3 documents.

`python -m tools.openapi KUBECONFIG` asks the server that the kubeconfig names and rewrites the packaged data file. A schema
stands in the document of every version that needs it; here it is kept once, with the kinds that it is for and the schemas
that it refers to, so that a server can put a document together without reading what is in it.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bramley.kube import config_loader
from bramley.kube.http import HttpTransport
from bramley.kube.transport import Request

OUT = Path(__file__).parent.parent / "src/bramley/apiserver/openapi/schemas.json.gz"
REFERENCE = "#/components/schemas/"
KIND = "x-kubernetes-group-version-kind"
PREFIX = "io.k8s."

Json = dict[str, Any]


def references(value: Any) -> Iterator[str]:
    """Return the names of the schemas that a schema refers to."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].removeprefix(REFERENCE)
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def kinds(schema: Json) -> list[list[str]]:
    """Return the group, version and kind of what a schema is for."""
    return [[each["group"], each["version"], each["kind"]] for each in schema.get(KIND, ())]


def cut(documents: dict[str, Json]) -> Json:
    """Return every schema of the built-in kinds, once; the core group's come first where versions differ."""
    schemas: Json = {}
    for path in sorted(documents, key=lambda path: (path != "api/v1", path)):
        for name, schema in documents[path].get("components", {}).get("schemas", {}).items():
            if name.startswith(PREFIX) and name not in schemas:
                needs = sorted(set(references(schema)))
                schemas[name] = {"kinds": kinds(schema), "needs": needs, "schema": schema}
    return dict(sorted(schemas.items()))


async def collect(kubeconfig: Path) -> dict[str, Json]:
    """Return the documents of all versions, by their paths."""
    transport = HttpTransport(config_loader.load(kubeconfig, environment={}))
    try:
        index = json.loads((await transport.send(Request("GET", "/openapi/v3"))).body)
        paths = [path for path in index["paths"] if path.count("/") >= 1 and path[:3] == "api"]
        return {
            path: json.loads((await transport.send(Request("GET", f"/openapi/v3/{path}"))).body)
            for path in paths
        }
    finally:
        await transport.close()


def main() -> None:
    """Write the data file."""
    found = cut(asyncio.run(collect(Path(sys.argv[1]))))
    text = json.dumps(found, separators=(",", ":"), sort_keys=True)
    OUT.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
