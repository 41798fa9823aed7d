"""Guest scripts, shared folders, and a run of a guest to its end."""

from __future__ import annotations

from typing import Any

from tests.contract.tart.targets import IMAGE, SMALL, Tart

QUICK = {"address": 1, "agent": 1, "ready": 2, "work": 4, "halt": 1}


def guest(tart: Tart, **script: Any) -> None:
    tart.configure(images={IMAGE: {**SMALL, "guest": {**QUICK, **script}}})


def shares(tart: Tart) -> tuple[str, ...]:
    root = tart.home.parent / "shares"
    for name in ("env", "status"):
        (root / name).mkdir(parents=True, exist_ok=True)
    return ("--dir", f"env:{root}/env:ro", "--dir", f"status:{root}/status")


def reported(tart: Tart, file: str) -> str:
    return (tart.home.parent / "shares/status" / file).read_text()


async def run(tart: Tart, *words: str) -> tuple[int, str, str]:
    ended = await tart("run", "one", "--no-graphics", *words)
    return ended.code, ended.stdout, ended.stderr
