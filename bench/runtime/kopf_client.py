"""kopf's side: an empty `on.event` handler over the same objects; run by the interpreter that has kopf.

`python kopf_client.py GROUP VERSION PLURAL OBJECTS` prints one line of JSON. The clock runs from the first
event handled to the last, so what kopf does before that is not held against it.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from typing import Any

import kopf


def main(group: str, version: str, plural: str, objects: str) -> None:
    """Run an operator until it has seen every object."""
    seen: list[float] = []
    stop = asyncio.Event()

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.networking.request_timeout = 120

    @kopf.on.event(group, version, plural)
    async def handle(**_: Any) -> None:
        seen.append(time.perf_counter())
        if len(seen) == int(objects):
            stop.set()

    asyncio.run(kopf.operator(standalone=True, clusterwide=True, stop_flag=stop))
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(json.dumps({"seconds": seen[-1] - seen[0], "resident": held}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
