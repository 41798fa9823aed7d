"""The embedded server with long grace periods for Nodes: `python -m tests.cluster.kubectl_sessions.server FOLDER`.

The Node of a session has no kubelet and reports once that it is ready; it has to stay ready on a busy machine.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from bramley.apiserver.controllers.timings import Timings
from bramley.app import apiserver, embedded
from bramley.app.listen_address import Address
from tests.contract.kube_client.targets import wait_for

ROOT = Path(__file__).parents[3]
READY = "ready"
LONG_GRACE_PERIODS = Timings(
    node_monitor_grace=timedelta(hours=1), node_startup_grace=timedelta(hours=1)
)


@contextmanager
def serving(folder: Path) -> Iterator[Path]:
    """Run the server in a process and yield the administrator's kubeconfig."""
    log = folder / "log"
    command = [sys.executable, "-m", "tests.cluster.kubectl_sessions.server", str(folder)]
    with (
        log.open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output, cwd=ROOT) as process,
    ):
        try:
            wait_for(folder / READY, process, log)
            yield folder / "kubeconfig"
        finally:
            process.terminate()
            process.wait(timeout=180)


def main(folder: Path) -> None:
    """Serve from this folder until a signal comes."""
    settings = apiserver.Settings(
        data_dir=folder / "data",
        listen=Address("127.0.0.1", 0),
        kubeconfig=folder / "kubeconfig",
        controllers=embedded.ControllerSettings(timings=LONG_GRACE_PERIODS),
    )
    apiserver.run(settings, on_serving=lambda _: (folder / READY).touch())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
