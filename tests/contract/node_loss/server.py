"""Our server with the short timings of this suite: `python -m tests.contract.node_loss.server FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from bramley.app import apiserver, embedded
from bramley.app.listen_address import Address
from tests.contract.node_loss import timings


def main(folder: Path) -> None:
    """Serve from this folder until a signal arrives."""
    settings = apiserver.Settings(
        data_dir=folder / "data",
        listen=Address("127.0.0.1", 0),
        kubeconfig=folder / "kubeconfig",
        api=timings.API,
        controllers=embedded.ControllerSettings(timings=timings.OURS),
    )
    apiserver.run(settings, on_serving=lambda _: (folder / "ready").touch())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
