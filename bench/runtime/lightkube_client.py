"""lightkube's side: its own asynchronous watch over the same events; run by the interpreter that has lightkube.

`python lightkube_client.py GROUP VERSION KIND PLURAL NAMESPACE SINCE EVENTS` prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from lightkube import AsyncClient
from lightkube.generic_resource import create_namespaced_resource


async def main(group: str, version: str, kind: str, plural: str, *rest: str) -> None:
    """Watch until the last event."""
    namespace, since, events = rest
    pools = create_namespaced_resource(group, version, kind, plural)
    client = AsyncClient()
    left = int(events)
    began = 0.0
    async for _event, _thing in client.watch(pools, namespace=namespace, resource_version=since):
        began = began or time.perf_counter()
        left -= 1
        if not left:
            break
    sys.stdout.write(json.dumps({"seconds": time.perf_counter() - began}) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
