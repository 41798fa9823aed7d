"""The questions of the vocabulary on the model of a Mac; nothing is changed by them.

As behind SSH: a program's answer is all that it prints; what only root may see is seen if sudo asks for no password, and else as
the user would see it.
"""

from __future__ import annotations

import stat as stats
from collections.abc import Collection

from bramley.host.commands import Find, Look, LookAt, Probe
from bramley.host.facts import FILE, FOLDER, LINK, OTHER, Answer, Facts, Found, Said
from bramley.sim.macos import call, sealing
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import reading, sudo


def facts(mac: Mac, user: str, probes: Collection[Probe]) -> Facts:
    """Answer all questions."""
    may = not isinstance(sudo.decide(mac, call.Call(("sudo", "-n", "true"), user)), call.Said)
    return Facts({probe: _answer(mac, user, probe, as_root=may) for probe in probes})


def _answer(mac: Mac, user: str, probe: Probe, *, as_root: bool) -> Answer:
    match probe:
        case Look():
            return said(mac, user, probe)
        case LookAt():
            return _held(mac, "root" if as_root and probe.as_root else user, probe)
        case Find():
            return _found(mac, "root" if as_root else user, probe)


def said(mac: Mac, user: str, probe: Look) -> Said:
    """Answer with what a program prints, and its code."""
    argv = ("sudo", "-n", "--", *probe.argv) if probe.as_root else probe.argv
    answer = mac.run(call.Call(argv, user))
    return Said(answer.code, (answer.out + answer.err).encode()[: probe.most])


def _held(mac: Mac, user: str, probe: LookAt) -> bytes | None:
    try:
        content = reading.contents(mac, call.Call(("head",), user), probe.path)
    except PermissionError:
        return None
    if content is None:
        return None
    return content[: probe.most] if content.startswith(probe.only) else b""


def _found(mac: Mac, user: str, probe: Find) -> Found | None:
    found = mac.files.find(probe.path)
    if found is None:
        return None
    owner = mac.files.owner(probe.path, follow=False)
    if stats.S_ISLNK(found.st_mode):
        return Found(LINK, owner=owner, target=mac.files.target(probe.path))
    mode = stats.S_IMODE(found.st_mode)
    if stats.S_ISDIR(found.st_mode):
        digest = sealing.digest(mac.files.at(probe.path)) if probe.digest else ""
        return Found(FOLDER, mode=mode, owner=owner, digest=digest)
    if not stats.S_ISREG(found.st_mode):
        return Found(OTHER, mode=mode, owner=owner)
    digest = _digest(mac, user, probe.path) if probe.digest else ""
    return Found(FILE, mode=mode, owner=owner, size=found.st_size, digest=digest)


def _digest(mac: Mac, user: str, path: str) -> str:
    try:
        reading.contents(mac, call.Call(("shasum",), user), path)
    except PermissionError:
        return ""
    return mac.files.digest(path)
