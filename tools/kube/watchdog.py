"""Waits until the process that started it exits, then stops its control plane.

The pipe on standard input closes with that process, however it ends; a signal handler could not promise as much.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.kube import control_plane
from tools.kube.instance import Instance


def main() -> None:
    """Watch over the instance whose folder is the only argument."""
    sys.stdin.buffer.read()
    control_plane.down(Instance(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
