"""The server starts quickly because it does not import heavy libraries that most servers never need."""

from __future__ import annotations

import json
import sys

from tests.programs import run_program

HEAVY = ("aiohttp", "cel", "cryptography.x509", "prometheus_client", "pydantic", "rich", "yaml")

PROGRAM = f"""
import json, sys
import bramley.cli.main, bramley.app.apiserver
bramley.cli.main.command_line()
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""


def test_the_server_s_start_loads_no_heavy_library() -> None:
    done = run_program([sys.executable, "-c", PROGRAM], check=True)

    assert json.loads(done.stdout) == []
