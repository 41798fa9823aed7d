"""The launchd job of a builder's runner, the note of its registration, and its removal.

The job is an agent of the user's graphical session, because Packer and Xcode need one. launchd's older commands (`load`, and with it
the runner's own `svc.sh start`) do not reach that session over SSH, so the job is loaded into `gui/<uid>` by name. A runner with a job is
never stopped.
"""

from __future__ import annotations

import plistlib
from collections.abc import Iterator, Sequence
from datetime import timedelta

import msgspec

from bramley.api.names import host, launchd
from bramley.host import launch_daemon
from bramley.host.commands import Command, Probe, ReadFile, Remove, Run, RunProbe, Stat, Wait
from bramley.host.facts import Facts

# The program that the runner starts for each job of GitHub. The brackets keep pgrep from matching its own arguments.
WORKER = RunProbe(("pgrep", "-f", r"[R]unner\.Worker"), max_bytes=4096)
FOLDER = Stat(host.ACTIONS_RUNNER)
NOTE = ReadFile(host.ACTIONS_RUNNER_NOTE, max_bytes=64 * 1024)
BUSY = "the runner of this Mac runs a job, which would be lost; wait until the job has ended"
_NO_MATCH = 1


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A registration without its secrets, and the session that its job is loaded into."""

    organisation: str
    name: str
    labels: tuple[str, ...]
    group: str
    user: str
    uid: int

    @property
    def label(self) -> str:
        """Return the label of the launchd job."""
        return launchd.actions_runner(self.organisation, self.name)

    @property
    def plist(self) -> str:
        """Return the path of the property list."""
        return f"{host.launch_agents(self.user)}/{self.label}.plist"

    @property
    def logs(self) -> str:
        """Return the folder of the job's output."""
        return f"{host.home(self.user)}/Library/Logs/{self.label}"

    @property
    def target(self) -> str:
        """Return the launchctl service target."""
        return f"{launchd.gui(self.uid)}/{self.label}"


def read_note(facts: Facts) -> Note | None:
    """Return the note on the Mac; None if there is none, or an unreadable one."""
    try:
        return msgspec.json.decode(facts.file(NOTE) or b"", type=Note)
    except msgspec.MsgspecError:
        return None


def probe(target: str) -> RunProbe:
    """Return the probe of a job: exit code 0 if it is loaded."""
    return RunProbe(("launchctl", "print", target), as_root=True, max_bytes=4096)


def is_busy(facts: Facts) -> bool:
    """Return whether the runner runs a job; a probe without an answer counts as yes."""
    return facts.result(WORKER).code != _NO_MATCH


def require_no_job() -> Wait:
    """Return the command that fails if a job has begun since the plan was computed; it must directly precede what would end jobs."""
    return Wait(
        probe=WORKER,
        code=_NO_MATCH,
        purpose="check that the runner has taken no job since",
        timeout=timedelta(seconds=5),
    )


def render_plist(note: Note) -> bytes:
    """Return the property list; the runner's own update finds its process by this program's path."""
    return plistlib.dumps(
        {
            "Label": note.label,
            "ProgramArguments": [f"{host.ACTIONS_RUNNER}/runsvc.sh"],
            "WorkingDirectory": host.ACTIONS_RUNNER,
            "EnvironmentVariables": {"ACTIONS_RUNNER_SVC": "1"},
            "RunAtLoad": True,
            "ProcessType": "Interactive",
            "SessionCreate": True,
            "StandardOutPath": f"{note.logs}/stdout.log",
            "StandardErrorPath": f"{note.logs}/stderr.log",
        },
        sort_keys=False,
    )


def load(note: Note) -> Iterator[Command]:
    """Yield the commands that load the job into the session and start it."""
    yield _launchctl("enable", note.target, purpose=f"enable the job {note.label}")
    yield _launchctl(
        "bootstrap", launchd.gui(note.uid), note.plist, purpose=f"load the job {note.label}"
    )
    yield restart(note)


def restart(note: Note) -> Run:
    """Return the command that starts the process of a loaded job again."""
    return _launchctl("kickstart", "-k", note.target, purpose=f"start the job {note.label}")


def unload(target: str) -> Iterator[Command]:
    """Yield the commands that stop a runner without a job."""
    yield require_no_job()
    yield _launchctl(
        "bootout",
        target,
        purpose=f"unload the job {target}",
        accepted_codes=launch_daemon.UNLOADED_CODES,
    )
    yield Wait(
        probe=probe(target),
        code=launch_daemon.NO_SERVICE,
        purpose=f"wait until the job {target} has ended",
        timeout=launch_daemon.STOP_TIMEOUT,
    )


def removal_probes(facts: Facts) -> Sequence[Probe]:
    """Return the probes of the job that the note names."""
    note = read_note(facts)
    return [probe(note.target), Stat(note.plist), Stat(note.logs)] if note else []


def remove(facts: Facts) -> Iterator[Command]:
    """Yield the removal of a runner that we have registered; the note, which identifies it as ours, is removed last.

    GitHub still lists the runner: its removal there needs a token of GitHub's API, not of the Mac.
    """
    note = read_note(facts)
    if note is None:
        return
    if facts.result(probe(note.target)).code == 0:
        yield from unload(note.target)
    for stat in (Stat(note.plist), Stat(note.logs), FOLDER):
        if facts.stat(stat):
            yield Remove(path=stat.path, purpose=f"remove {stat.path}")
    yield Remove(path=NOTE.path, purpose="remove the record of the runner's registration")


def refusal(facts: Facts) -> str:
    """Return why the runner must not be removed now; empty if it may."""
    return BUSY if is_busy(facts) and any(remove(facts)) else ""


def _launchctl(*words: str, purpose: str, accepted_codes: tuple[int, ...] = (0,)) -> Run:
    return Run(
        argv=("launchctl", *words), purpose=purpose, as_root=True, accepted_codes=accepted_codes
    )
