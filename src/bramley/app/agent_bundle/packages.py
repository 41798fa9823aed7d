"""The packages of others that an agent imports: which distributions they come in, and which of their files it needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.metadata import packages_distributions as providers
from pathlib import Path, PurePosixPath

from bramley.app.agent_bundle import tree
from bramley.base.errors import BadConfiguration

# Sources of native modules, types and tests: nothing that an agent loads.
_UNNEEDED = re.compile(
    r".*\.(?:pyi|pyx|pxd|pxi|c|cc|cpp|h|hpp|pyc|typed|hash)"
    r"|(?:.*/)?_test\w*\.[\w.-]*so"
    r"|(?:.*/)?(?:tests?|__pycache__|\.hash)/.*"
)
# Of a distribution's own notes only these travel: the others tell where and how it was installed.
_NOTES = re.compile(
    r"[^/]+\.dist-info/(?:METADATA|(?:licenses/.*)?(?:LICEN[CS]E|COPYING|NOTICE|AUTHORS)[^/]*)"
)


def is_needed(name: str) -> bool:
    """Tell whether a file of a wheel, named as it will be installed, belongs into the archive."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return False
    if path.parts[0].endswith((".dist-info", ".data")):
        return _NOTES.fullmatch(name) is not None
    return _UNNEEDED.fullmatch(name) is None


def installed(imported: Iterable[str]) -> list[Distribution]:
    """Return the distributions behind these top-level names and what they require, as installed here, by name."""
    by_import = providers()
    if missing := set(imported) - by_import.keys():
        raise BadConfiguration(f"the agent imports {', '.join(sorted(missing))}: not installed")
    waiting = [name for top in imported for name in by_import[top]]
    found: dict[str, Distribution] = {}
    while waiting:
        one = distribution(waiting.pop())
        if key(one.name) not in found:
            found[key(one.name)] = one
            waiting += _required(one.requires or ())
    return [found[name] for name in sorted(found)]


def key(name: str) -> str:
    """Return the one form of a distribution's name in which two of the same are equal."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _required(requirements: Iterable[str]) -> Iterator[str]:
    for text in requirements:
        wanted, _, marker = text.partition(";")
        match = re.match(r"[\w.-]+", wanted)
        if match and "extra" not in marker and (not marker or _is_installed(match[0])):
            yield match[0]


def _is_installed(name: str) -> bool:
    # What a marker asks for is here if it holds.
    try:
        return bool(distribution(name).version)
    except PackageNotFoundError:
        return False


def files_of(one: Distribution) -> dict[str, tree.Source]:
    """Return the files of an installed distribution that belong into the archive."""
    names = [file for file in one.files or () if is_needed(file.as_posix())]
    if not names:
        raise BadConfiguration(f"{one.name} has no list of its files here; install it with pip")
    return {file.as_posix(): Path(str(file.locate())) for file in names}
