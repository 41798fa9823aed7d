"""`/healthz`, `/livez`, `/readyz`, each check alone or all of them, and `/version`."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from typing import Any

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.apimachinery.status import no_such_path
from bramley.apiserver.store.store import Store

CHECKS = ("ping", "store")


def failing(store: Store, probe: str) -> dict[str, str]:
    """Return the failing checks with their reasons; liveness fails only if a restart helps, which a full disk does not need."""
    write_error = store.write_error
    if write_error is None or (probe == "livez" and not write_error.cured_by_restart):
        return {}
    return {"store": str(write_error)}


def report(
    path: list[str], failing: Mapping[str, str], query: Mapping[str, list[str]]
) -> tuple[int, str]:
    """Return the status code and the text of a probe or of one of its checks; the query may hold `verbose` and `exclude`."""
    probe, *only = path
    excluded = set(query.get("exclude", ()))
    if only:
        if only[0] not in CHECKS:
            raise no_such_path()
        excluded |= set(CHECKS) - set(only)
    lines, bad = [], False
    for check in CHECKS:
        if check in excluded:
            lines.append(f"[+]{check} excluded: ok")
        elif check in failing:
            bad = True
            lines.append(f"[-]{check} failed: {failing[check]}")
        else:
            lines.append(f"[+]{check} ok")
    lines += [
        f'warn: some health checks cannot be excluded: no matches for "{each}"'
        for each in sorted(excluded - set(CHECKS))
    ]
    verdict = "failed" if bad else "passed"
    text = "\n".join([*lines, f"{probe} check {verdict}", ""])
    if bad:
        return 500, text
    return 200, text if "verbose" in query else "ok"


def version(settings: Settings) -> dict[str, Any]:
    """Return the content of `/version`."""
    major, minor = settings.major_minor
    return {
        "major": major,
        "minor": minor,
        "gitVersion": settings.git_version,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation(),
        "platform": f"{sys.platform}/{platform.machine()}",
    }
