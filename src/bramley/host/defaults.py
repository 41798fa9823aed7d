"""Settings of macOS that `defaults` reads and writes; a value is written only where it differs.

They are read as root: a write by root leaves a file that only root can read, and for other users the domain does not exist. Where
sudo still needs a password the value is unknown, and counts as different.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bramley.host.commands import Command, Run, RunProbe, Stat
from bramley.host.facts import Facts, RunResult

_MISSING = "does not exist"
_READABLE = 0o644


@dataclass(frozen=True, slots=True)
class Default:
    """One value of a system-wide domain."""

    domain: str
    key: str
    value: bool | int | str

    @property
    def probe(self) -> RunProbe:
        """Return the probe of the current value."""
        return RunProbe(("defaults", "read", self.domain, self.key), as_root=True)

    def is_set(self, facts: Facts) -> bool:
        """Return whether the current value is the desired one."""
        current = facts.result(self.probe)
        return current.code == 0 and current.text == self._printed_value

    def read_error(self, facts: Facts) -> str:
        """Return why the current value is unknown; empty if it is known, or known to be missing."""
        result = facts.result(self.probe)
        return "" if is_answer(result) else describe_failure(self.probe, result)

    def write(self) -> Run:
        """Return the command that sets the value."""
        kinds = {bool: "-bool", int: "-int", str: "-string"}
        text = str(self.value).lower() if isinstance(self.value, bool) else self._printed_value
        return Run(
            argv=("defaults", "write", self.domain, self.key, kinds[type(self.value)], text),
            purpose=f"set {self.key} to {text}",
            as_root=True,
        )

    @property
    def _printed_value(self) -> str:
        return str(int(self.value)) if isinstance(self.value, bool) else str(self.value)


def is_answer(result: RunResult) -> bool:
    """Return whether `defaults read` has found a value, or that there is none; a refusal by sudo or a timeout is neither."""
    return result.code == 0 or _MISSING in result.text


def describe_failure(probe: RunProbe, result: RunResult) -> str:
    """Return the command of a probe without a usable answer, its exit code and the beginning of its output."""
    output = " ".join(result.text.split())[:160] or "no output"
    return f"`{'sudo ' if probe.as_root else ''}{' '.join(probe.argv)}` ended with code {result.code}: {output}"


def write_changed(settings: Iterable[Default], facts: Facts) -> Iterator[Command]:
    """Yield the commands that set each value that differs."""
    return (setting.write() for setting in settings if not setting.is_set(facts))


def file_probe(domain: str) -> Stat:
    """Return the probe of the file of a domain."""
    return Stat(f"{domain}.plist")


def make_readable(settings: Sequence[Default], facts: Facts) -> Iterator[Command]:
    """Yield the commands after which processes of users see these settings, which a write by root hides from them."""
    for domain in dict.fromkeys(setting.domain for setting in settings):
        probe = file_probe(domain)
        stat = facts.stat(probe)
        is_written = any(not each.is_set(facts) for each in settings if each.domain == domain)
        if is_written or (stat is not None and stat.mode != _READABLE):
            yield Run(
                argv=("chmod", f"{_READABLE:04o}", probe.path),
                purpose=f"let the user's session read {probe.path}",
                as_root=True,
            )
