"""Third-party Kubernetes clients in a separate environment: pinned by hash, created once per lock file.

Benchmarks compare with them, and tests run them on the embedded API. They are never installed in the project's environment.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tools.kube.programs import user_cache

LOCK = Path(__file__).parents[1] / "requirements" / "bench.txt"


def interpreter() -> Path:
    """Return the Python that has kopf, lightkube and the official client; the first call installs them."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    home = user_cache() / "rivals" / f"{sys.version_info.major}.{sys.version_info.minor}-{digest}"
    python = home / "bin" / "python"
    if python.exists():
        return python
    what = "Installing kopf, lightkube and the official client, pinned by hash"
    print(what, file=sys.stderr, flush=True)
    building = home.with_name(f"{home.name}.{os.getpid()}")
    venv.create(building, with_pip=True)
    install = ["-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(LOCK)]
    subprocess.run([building / "bin" / "python", *install], check=True, timeout=900)
    # Where another process was faster, what it made is the same.
    with contextlib.suppress(OSError):
        building.rename(home)
    shutil.rmtree(building, ignore_errors=True)
    return python


if __name__ == "__main__":
    interpreter()
