"""Write the answers of a real kube-apiserver to the recorded requests: `python -m tests.contract.crd.record`."""

from __future__ import annotations

from tests.contract.crd import server_answers, tables
from tools.kube import control_plane, go_build
from tools.kube.flags import Options


def main() -> None:
    options = Options(controller_manager=False, scheduler=False, durable=False)
    go_build.ensure([*options.servers, "kubectl"])
    with (
        control_plane.running(options, purpose="record") as cluster,
        server_answers.caller(cluster) as call,
    ):
        for name in tables.NAMES:
            tables.save(name, getattr(server_answers, name)(call, tables.load(name)))


if __name__ == "__main__":
    main()
