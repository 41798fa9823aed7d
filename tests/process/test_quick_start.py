"""The server starts quickly because it does not import heavy libraries that most servers never need."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = ("aiohttp", "cel", "cryptography.x509", "prometheus_client", "pydantic", "rich", "yaml")

PROGRAM = f"""
import json, sys
import bramley.cli.main, bramley.app.apiserver
bramley.cli.main.command_line()
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""


def test_the_server_s_start_loads_no_heavy_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=180
    )

    assert json.loads(done.stdout) == []
