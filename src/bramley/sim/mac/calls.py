"""One call of a program on a simulated Mac: its arguments, and where its output goes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bramley.sim.mac.processes import Process


@dataclass(slots=True)
class Call:
    """What a program was started with; `out` and `err` take whole lines."""

    argv: Sequence[str]
    out: Callable[[str], None]
    err: Callable[[str], None]
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    as_root: bool = False


Program = Callable[[Process, Call], Coroutine[Any, Any, int]]
