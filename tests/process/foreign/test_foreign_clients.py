"""The official Python client and a kopf operator, unmodified, over a server that is killed in the middle of their work."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.process.serving.processes import held_port, running
from tools import foreign

HERE = Path(__file__).parent
OBJECTS = 1_000
KILLED_AFTER = "created 500"
# Longer than the client's own timeout.
TIMEOUT_SECONDS = 900


@contextmanager
def program(name: str, *arguments: str, kubeconfig: Path, log: Path) -> Iterator[IO[str]]:
    """Run one of the foreign programs; what it prints can be read line by line."""
    with log.open("w") as err:
        process = subprocess.Popen(
            [foreign.interpreter(), HERE / name, *arguments],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        )
    assert process.stdout
    with process.stdout:
        try:
            yield process.stdout
        finally:
            process.kill()
            process.wait(TIMEOUT_SECONDS)


class Lines:
    """What a program prints, each line awaited with a deadline."""

    def __init__(self, stream: IO[str]) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def until(self, beginning: str) -> str:
        while True:
            line = self._lines.get(timeout=TIMEOUT_SECONDS)
            assert line, "the program ended"
            if line.startswith(beginning):
                return line

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line.rstrip("\n"))
        self._lines.put("")


def test_no_object_is_missed_when_the_server_is_killed(tmp_path: Path) -> None:
    place = tmp_path / "server"
    kubeconfig = place / "kubeconfig"
    with held_port() as port, running(place, "--listen", f"127.0.0.1:{port}") as first:
        client = program(
            "official_client.py",
            *(str(kubeconfig), str(OBJECTS)),
            kubeconfig=kubeconfig,
            log=tmp_path / "client.log",
        )
        with client as printed:
            lines = Lines(printed)
            lines.until("defined")
            operator = program(
                "press_operator.py", kubeconfig=kubeconfig, log=tmp_path / "operator.log"
            )
            with operator:
                lines.until(KILLED_AFTER)
                first.process.kill()
                first.process.wait(TIMEOUT_SECONDS)
                with running(place, "--listen", f"127.0.0.1:{port}"):
                    report = json.loads(lines.until("{"))

    assert report == {
        "watched_all": True,
        "not_watched": [],
        "pressed": OBJECTS,
        "listed": OBJECTS,
        "juices": OBJECTS,
    }
