"""Write how a real server shows the objects of `objects.yaml`: `python -m tests.unit.apiserver.tables.record KUBECONFIG`.

Recorded is, per kind, the time of the answer, the objects as JSON and their rows; ages follow from these.
"""

from __future__ import annotations

import asyncio
import json
import sys
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import yaml

from bramley.kube import config_loader
from bramley.kube.http import HttpTransport
from bramley.kube.transport import Request, Response

HERE = Path(__file__).parent
RECORDED = HERE / "recorded.json"
CUSTOM = "shown.example.com"
SAMPLE = 3
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

Json = dict[str, Any]


def merged(base: Any, over: Any) -> Any:
    """Return two values as one; what both have comes from the second."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    both = {key: merged(base[key], over[key]) for key in base.keys() & over.keys()}
    return {**base, **over, **both}


async def send(transport: HttpTransport, method: str, path: str, body: Any = None) -> Response:
    """Send one request and stop at the first refusal."""
    data = None if body is None else json.dumps(body).encode()
    kind = None if data is None else "application/json"
    if method == "PATCH":
        kind = "application/merge-patch+json"
    response = await transport.send(Request(method, path, body=data, content_type=kind))
    if response.status >= 400 and response.status != 409:
        raise SystemExit(f"{method} {path}: {response.body.decode()}")
    return response


async def write(transport: HttpTransport, at: str, given: Json) -> None:
    """Create one object, with its status, and begin its deletion if it asks for that."""
    status, deleted = given.pop("status", None), given.pop("delete", False)
    await send(transport, "POST", at, given)
    path = f"{at}/{given['metadata']['name']}"
    if status is not None and CUSTOM not in at:
        await send(transport, "PATCH", f"{path}/status", {"status": status})
    elif status is not None:
        await send(transport, "PATCH", path, {"status": status})
    if deleted:
        await send(transport, "DELETE", path)


def kept(rows: list[Json], entry: Json) -> list[Json]:
    """Return the rows of our own objects; where we have none, some of those that every server has."""
    own = {each["metadata"]["name"] for each in entry["objects"]}
    found = [each for each in rows if each["object"]["metadata"]["name"] in own]
    return found if own else rows[:SAMPLE]


async def shown(transport: HttpTransport, entry: Json) -> Json:
    """Return a collection as a table, with the objects in it and the time of the answer."""
    at = entry["at"]
    query = {"includeObject": "Object"}
    response = await transport.send(Request("GET", at, query, accept=TABLE))
    table = json.loads(response.body)
    rows = kept(table["rows"], entry)
    for each in rows:
        each["object"]["metadata"].pop("managedFields", None)
    now = parsedate_to_datetime(response.headers["date"]).isoformat()
    recorded = {"at": at, "now": now, "rows": rows}
    return {**recorded, "columns": table["columnDefinitions"]} if CUSTOM in at else recorded


async def record(kubeconfig: Path) -> list[Json]:
    """Write the objects and read them as tables."""
    transport = HttpTransport(config_loader.load(kubeconfig, environment={}))
    entries = yaml.safe_load((HERE / "objects.yaml").read_text())
    try:
        await send(transport, "POST", "/api/v1/namespaces", {"metadata": {"name": "shown"}})
        await send(
            transport,
            "POST",
            "/api/v1/namespaces/shown/serviceaccounts",
            {"metadata": {"name": "default"}},
        )
        for entry in entries:
            for given in entry["objects"]:
                await write(transport, entry["at"], merged(entry.get("template", {}), given))
            if "customresourcedefinitions" in entry["at"]:
                await asyncio.sleep(3)
        # Ages of more than nothing, so that they show.
        await asyncio.sleep(5)
        return [await shown(transport, entry) for entry in entries]
    finally:
        await transport.close()


def main() -> None:
    """Write the file."""
    entries = asyncio.run(record(Path(sys.argv[1])))
    lines = ",\n".join(json.dumps(each, sort_keys=True) for each in entries)
    RECORDED.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
