"""What a Mac answered to the questions of all steps, asked in one round trip.

A question that was not asked is a bug of the step, and said so; an answer of nothing is a fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bramley.host.commands import Find, Look, LookAt, Probe


@dataclass(frozen=True, slots=True)
class Said:
    """The answer to a Look: the exit code, 127 for a program that is not there, and what it printed."""

    code: int
    output: bytes = b""

    @property
    def text(self) -> str:
        """Return the output as text, without the white space around it."""
        return self.output.decode("utf-8", "replace").strip()


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to a Find: what is there; `owner` as in `root:wheel`, `digest` empty if not asked for or a link."""

    kind: str
    mode: int = 0
    owner: str = ""
    size: int = 0
    target: str = ""
    digest: str = ""


FILE, FOLDER, LINK, OTHER = "file", "folder", "link", "other"
Answer = Said | Found | bytes | None


@dataclass(frozen=True, slots=True)
class Facts:
    """All answers of one look at a Mac."""

    # Not in the repr: files of a Mac hold secrets.
    answers: Mapping[Probe, Answer] = field(default_factory=dict, repr=False)

    def said(self, probe: Look) -> Said:
        """Return what a program answered."""
        answer = self.answers[probe]
        assert isinstance(answer, Said)  # noqa: S101 - for the type checker; connections keep to it
        return answer

    def file(self, probe: LookAt) -> bytes | None:
        """Return what a file holds; None if there is none."""
        answer = self.answers[probe]
        assert answer is None or isinstance(answer, bytes)  # noqa: S101 - for the type checker
        return answer

    def found(self, probe: Find) -> Found | None:
        """Return what is at a path; None if nothing is."""
        answer = self.answers[probe]
        assert answer is None or isinstance(answer, Found)  # noqa: S101 - for the type checker
        return answer

    def and_then(self, newer: Facts) -> Facts:
        """Return these facts, with the newer answers in place of the older ones."""
        return Facts({**self.answers, **newer.answers})
