"""The tools of a builder, from Homebrew: Packer, which bakes images, and crane, which logs in to registries.

Nothing is upgraded: macOS ties the Local Network permission to Packer's signature, and another Packer would wait for a click in
its dialog for ever. So Packer is pinned before anything else is installed, and what exists stays, whatever its version. Homebrew itself and the
tools are downloaded by the Mac.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from bramley.api.names import host
from bramley.base.errors import UnsupportedHost
from bramley.host import archive_install, defaults, drift
from bramley.host.commands import Command, Probe, Run, RunProbe, Stat
from bramley.host.facts import Facts
from bramley.host.step import Step

PACKER, CRANE = "packer", "crane"
_TAP = "hashicorp/tap"
_INSTALLED = RunProbe((host.HOMEBREW, "list", "--versions", PACKER, CRANE))
_PINNED = RunProbe((host.HOMEBREW, "list", "--pinned"))
_BREW = Stat(host.HOMEBREW)
_INSTALLER = Stat(host.HOMEBREW_INSTALLER)
_FOLDER = Stat(host.STAMPS_FOLDER)
# All are installed, some are not, and there is no Homebrew.
_ANSWERS = {0, 1, 127}
_DOWNLOAD_TIMEOUT = timedelta(minutes=2)
# It may download Apple's command line tools.
_HOMEBREW_TIMEOUT = timedelta(minutes=30)
_INSTALL_TIMEOUT = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class BuilderTools(Step):
    """Install what is missing, and pin Packer."""

    name: ClassVar[str] = "builder-tools"
    title: ClassVar[str] = "tools of a builder"

    def probes(self) -> list[Probe]:
        """Probe Homebrew, the versions of the tools, and what is pinned."""
        return [_BREW, _INSTALLER, _FOLDER, _INSTALLED, _PINNED]

    def check_supported(self, facts: Facts) -> None:
        """Refuse a Homebrew that does not answer: to install what exists would upgrade it."""
        for probe in (_INSTALLED, _PINNED):
            result = facts.result(probe)
            if result.code not in _ANSWERS:
                failure = defaults.describe_failure(probe, result)
                raise UnsupportedHost(f"the installed tools are unknown: {failure}")

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Install Homebrew, Packer and crane, each only if it is missing."""
        # An installer that is still there was interrupted.
        if facts.stat(_BREW) is None or facts.stat(_INSTALLER):
            yield from _install_homebrew(facts)
        installed = versions(facts)
        if PACKER not in installed:
            yield _brew("tap", _TAP, purpose=f"add the source {_TAP} to Homebrew")
            yield _brew("install", f"{_TAP}/{PACKER}", purpose="install packer")
        if PACKER not in installed or PACKER not in facts.result(_PINNED).text.split():
            yield _brew("pin", PACKER, purpose="keep packer in its version")
        # After the pin: an installation upgrades what depends on it, except pinned formulae.
        if CRANE not in installed:
            yield _brew("install", CRANE, purpose="install crane")


def versions(facts: Facts) -> dict[str, str]:
    """Return the versions of the installed tools, by name; without Homebrew there are none."""
    lines = (line.split() for line in facts.result(_INSTALLED).text.splitlines())
    return {words[0]: words[1] for words in lines if len(words) > 1 and words[0] in (PACKER, CRANE)}


def _install_homebrew(facts: Facts) -> Iterator[Command]:
    if facts.stat(_FOLDER) is None:
        yield drift.CREATE_FOLDER
    # Into a folder of root's, so that no other user can replace it before it runs.
    yield Run(
        argv=("curl", "-f", "-s", "-S", "-L", "-o", _INSTALLER.path, host.HOMEBREW_INSTALLER_URL),
        purpose="download the installer of Homebrew",
        as_root=True,
        timeout=_DOWNLOAD_TIMEOUT,
    )
    # It refuses to run as root, and asks nothing without a terminal.
    yield Run(argv=("bash", _INSTALLER.path), purpose="install Homebrew", timeout=_HOMEBREW_TIMEOUT)
    yield archive_install.remove_unneeded(_INSTALLER.path)


def _brew(*words: str, purpose: str) -> Run:
    return Run(argv=(host.HOMEBREW, *words), purpose=purpose, timeout=_INSTALL_TIMEOUT)
