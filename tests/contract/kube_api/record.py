"""Write the answers of a real kube-apiserver to all cases: `python -m tests.contract.kube_api.record [GROUP…]`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.contract.kube_api import tables, targets
from tools.kube import control_plane, go_build
from tools.kube.flags import Options


async def record(kubeconfig: Path, groups: set[str]) -> None:
    """Run the cases on the server and save its answers."""
    answers: dict[str, dict[str, list[tables.Json]]] = {}
    async with targets.real(kubeconfig) as target:
        for case in tables.cases():
            if not groups or case.group in groups:
                answers.setdefault(case.group, {})[case.name] = await target.run(case)
    for group, given in answers.items():
        tables.save_answers(group, given)


def main() -> None:
    """Start a control plane without controllers, record its answers, and stop it."""
    options = Options(controller_manager=False, scheduler=False, durable=False)
    go_build.ensure([*options.servers, "kubectl"])
    with control_plane.running(options, purpose="record") as cluster:
        asyncio.run(record(cluster.kubeconfig, set(sys.argv[1:])))


if __name__ == "__main__":
    main()
