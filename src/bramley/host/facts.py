"""The results of the probes of all steps, gathered in one round trip.

Reading a probe that was not sent is a bug of the step and raises KeyError; an empty result is a fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bramley.host.commands import Probe, ReadFile, RunProbe, Stat


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a RunProbe: the exit code (127 if the program does not exist) and the output."""

    code: int
    output: bytes = b""

    @property
    def text(self) -> str:
        """Return the output as text, without surrounding white space."""
        return self.output.decode("utf-8", "replace").strip()


@dataclass(frozen=True, slots=True)
class FileStat:
    """The result of a Stat; `owner` as in `root:wheel`, `digest` empty for links or if not requested."""

    kind: str
    mode: int = 0
    owner: str = ""
    size: int = 0
    target: str = ""
    digest: str = ""


FILE, FOLDER, LINK, OTHER = "file", "folder", "link", "other"
ProbeResult = RunResult | FileStat | bytes | None


@dataclass(frozen=True, slots=True)
class Facts:
    """All probe results of one Mac at one time, and whether the run may reboot it."""

    # Not in the repr: files of a Mac may hold secrets.
    results: Mapping[Probe, ProbeResult] = field(default_factory=dict, repr=False)
    # A run reboots a Mac at most once, and with --no-reboot never.
    is_rebooted: bool = False
    no_reboot: bool = False

    def result(self, probe: RunProbe) -> RunResult:
        """Return a program's result."""
        result = self.results[probe]
        assert isinstance(result, RunResult)  # noqa: S101 - for the type checker; connections keep to it
        return result

    def file(self, probe: ReadFile) -> bytes | None:
        """Return a file's content; None if it does not exist."""
        result = self.results[probe]
        assert result is None or isinstance(result, bytes)  # noqa: S101 - for the type checker
        return result

    def stat(self, probe: Stat) -> FileStat | None:
        """Return what exists at a path; None if nothing does."""
        result = self.results[probe]
        assert result is None or isinstance(result, FileStat)  # noqa: S101 - for the type checker
        return result

    def merged(self, newer: Facts) -> Facts:
        """Return these facts, with newer results replacing older ones."""
        return replace(self, results={**self.results, **newer.results})
