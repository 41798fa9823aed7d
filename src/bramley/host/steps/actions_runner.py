"""The GitHub Actions runner of a builder: installed once, registered with its organisation, and loaded into the user's session.

A runner that is registered under this name and loaded is left alone, and needs no token. A token is requested only for a registration,
directly before it, since it is valid for an hour and a bootstrap may take as long. It is sent on standard input, and the runner's own
program gets it in its environment. The runner updates itself, so another archive is no reason to install it again.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

import msgspec

from bramley.api.names import host, launchd
from bramley.base.errors import BadConfiguration, NotConverged, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host import (
    actions_runner_job,
    drift,
    launch_daemon,
    loginwindow,
)
from bramley.host.actions_runner_job import NOTE, Note
from bramley.host.archive_install import ArchiveInstall
from bramley.host.commands import (
    Command,
    Folder,
    Probe,
    ReadFile,
    Remove,
    Rename,
    Run,
    RunProbe,
    Stat,
    Write,
)
from bramley.host.facts import Facts
from bramley.host.spec import Builder
from bramley.host.step import Step

SITE = "https://github.com"
_CONFIG = Stat(f"{host.ACTIONS_RUNNER}/config.sh")
_SERVICE = Stat(f"{host.ACTIONS_RUNNER}/runsvc.sh")
_PATH = ReadFile(f"{host.ACTIONS_RUNNER}/.path")
_REGISTRATION = ReadFile(f"{host.ACTIONS_RUNNER}/.runner", as_root=True, max_bytes=64 * 1024)
_CREDENTIALS = Stat(f"{host.ACTIONS_RUNNER}/.credentials")
# In this order: while the first one exists, the next plan finds the registration that the others belong to.
_REGISTRATION_FILES = (
    f"{host.ACTIONS_RUNNER}/.credentials",
    f"{host.ACTIONS_RUNNER}/.credentials_rsaparams",
    _REGISTRATION.path,
)
_SEARCH_PATH = f"{host.SEARCH_PATH}\n".encode()
# Names that the files of the Mac may contain, and that become part of a label and of a path.
_SAFE = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
_TOKEN = re.compile(r"[!-~]{1,500}", re.ASCII)
_REGISTER_TIMEOUT = timedelta(minutes=3)


class _Registration(msgspec.Struct, frozen=True, rename="camel"):
    """What the runner writes about its registration."""

    agent_name: str
    git_hub_url: str


@dataclass(frozen=True, slots=True)
class ActionsRunner(Step):
    """Keep the runner registered and loaded."""

    name: ClassVar[str] = "actions-runner"
    title: ClassVar[str] = "the GitHub Actions runner"

    builder: Builder
    node_name: str
    user: str
    token: Secret | None = None

    def desired(self) -> drift.DesiredPart:
        """Stamp the settings that a fleet shares; neither the name nor a token."""
        shared = [self.builder.organisation, sorted(self.builder.labels), self.builder.group]
        digest = drift.digest(msgspec.json.encode(shared))
        return drift.DesiredPart(drift.Part.ACTIONS_RUNNER, {"settings": digest})

    def probes(self) -> list[Probe]:
        """Probe the installation, the registration, and the job in the sessions of the first users."""
        note = self._note(0)
        paths = (*_REGISTRATION_FILES, note.plist, note.logs, self._agents, host.STAMPS_FOLDER)
        stats = [_CONFIG, _SERVICE, actions_runner_job.FOLDER, *map(Stat, paths)]
        files = [_PATH, _REGISTRATION, NOTE, ReadFile(note.plist)]
        runs = [actions_runner_job.WORKER, loginwindow.uid_probe(self.user)]
        jobs = [self._job_probe(uid) for uid in loginwindow.FIRST_UIDS]
        return [*stats, *files, *runs, *jobs, *self._install.probes()]

    def follow_up_probes(self, facts: Facts) -> Sequence[Probe]:
        """Probe the session of a user who is not one of the first on the Mac."""
        uid = self._uid(facts)
        return [] if uid in loginwindow.FIRST_UIDS else [self._job_probe(uid)]

    def check_supported(self, facts: Facts) -> None:
        """Refuse a registration without a token, and to stop a runner that runs a job."""
        if self._needs_registration(facts) and not (self.builder.token or self.token):
            raise UnsupportedHost(
                "the runner must be registered, and no registration token was given; provide one"
            )
        if self._needs_registration(facts) and actions_runner_job.is_busy(facts):
            raise UnsupportedHost(actions_runner_job.BUSY)

    def is_skippable(self, facts: Facts) -> bool:  # noqa: ARG002 - part of the protocol
        """Return True: no other step depends on the runner, least of all the repair of the agent."""
        return True

    async def with_secret(self, facts: Facts) -> ActionsRunner:
        """Return the step with a new token, if the runner must be registered."""
        if self.token or self.builder.token is None or not self._needs_registration(facts):
            return self
        token = await self.builder.token()
        if not _TOKEN.fullmatch(token.reveal()):
            # Not shown.
            raise BadConfiguration("the registration token is not valid: it must be one word")
        return replace(self, token=token)

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Install the runner if it is missing, register it if it is not, and load its job."""
        note = self._note(self._uid(facts))
        needs_registration = self._needs_registration(facts)
        if needs_registration:
            yield from self._unregister(facts, note)
        # Before the registration, whose files do not exist now: the note never describes another one.
        yield from _write_note(facts, note)
        is_installed = facts.stat(_CONFIG) is not None
        if is_installed:
            yield from self._install.remove_leftovers(facts)
        else:
            yield from self._install_runner(facts)
        if not is_installed or facts.stat(_SERVICE) is None:
            yield _install_service()
        if needs_registration:
            yield self._register()
        if needs_registration or not self._is_loaded(facts):
            yield from self._write_job(facts, note, is_new=needs_registration)
            yield from actions_runner_job.load(note)
        elif not launch_daemon.pid(facts.result(self._job_probe(note.uid))):
            yield actions_runner_job.restart(note)

    def verify(self, facts: Facts) -> None:
        """Report a runner that did not register or does not run."""
        if self._needs_registration(facts):
            raise NotConverged(
                f"config.sh has succeeded, and {host.ACTIONS_RUNNER} has no registration of {self.node_name}; see its folder _diag"
            )
        uid = self._uid(facts)
        if not (self._is_loaded(facts) and launch_daemon.pid(facts.result(self._job_probe(uid)))):
            raise NotConverged(f"the runner does not run; see {self._note(uid).logs}")

    @property
    def _install(self) -> ArchiveInstall:
        folder, _, prefix = host.ACTIONS_RUNNER.rpartition("/")
        return ArchiveInstall(self.builder.archive, folder, prefix)

    @property
    def _owner(self) -> str:
        return f"{self.user}:staff"

    def _uid(self, facts: Facts) -> int:
        return loginwindow.uid_of(self.user, facts) or loginwindow.FIRST_UIDS[0]

    def _note(self, uid: int) -> Note:
        return Note(
            organisation=self.builder.organisation,
            name=self.node_name,
            labels=tuple(sorted(self.builder.labels)),
            group=self.builder.group,
            user=self.user,
            uid=uid,
        )

    def _job_probe(self, uid: int) -> RunProbe:
        return actions_runner_job.probe(self._note(uid).target)

    def _is_loaded(self, facts: Facts) -> bool:
        return facts.result(self._job_probe(self._uid(facts))).code == 0

    def _needs_registration(self, facts: Facts) -> bool:
        """Return whether there is no registration with this name, or one that we have made with other labels or in another group."""
        desired = self._note(0)
        found = _registered_job(facts)
        if facts.stat(_CONFIG) is None or facts.stat(_CREDENTIALS) is None:
            return True
        if found != desired.label:
            return True
        note = actions_runner_job.read_note(facts)
        # A runner that was registered by other means, or interrupted before this one, is taken over as it is.
        is_same = note is not None and note.label == desired.label
        return is_same and (note.labels, note.group) != (desired.labels, desired.group)  # type: ignore[union-attr]

    def _unregister(self, facts: Facts, note: Note) -> Iterator[Command]:
        """Stop the runner, and remove what config.sh takes for a registration; of another name also its job."""
        domain = launchd.gui(note.uid)
        if self._is_loaded(facts):
            yield from actions_runner_job.unload(note.target)
        other = _registered_job(facts)
        if other is not None and other != note.label:
            yield from actions_runner_job.unload(f"{domain}/{other}")
            path = f"{self._agents}/{other}.plist"
            yield Remove(path=path, purpose=f"remove the job {other}")
        for path in _REGISTRATION_FILES:
            if facts.stat(Stat(path)):
                yield Remove(path=path, purpose=f"remove {path} of the earlier registration")

    def _install_runner(self, facts: Facts) -> Iterator[Command]:
        name = f"{self.builder.archive.name} {self.builder.archive.version}"
        yield from self._install.unpack(
            facts, version_command=("config.sh", "--version"), owner=self._owner
        )
        if facts.stat(actions_runner_job.FOLDER):
            yield Remove(path=host.ACTIONS_RUNNER, purpose="remove the damaged runner")
        yield Rename(path=self._install.incoming, to=host.ACTIONS_RUNNER, purpose=f"install {name}")
        yield from self._install.remove_temporary()

    def _register(self) -> Run:
        builder = self.builder
        group = ("--runnergroup", builder.group) if builder.group else ()
        return Run(
            argv=(
                _CONFIG.path,
                *("--url", f"{SITE}/{builder.organisation}", "--name", self.node_name),
                *("--labels", ",".join(builder.labels), *group, "--work", "_work"),
                *("--unattended", "--replace"),
            ),
            purpose="register the runner at GitHub",
            stdin=self.token or Secret(""),
            stdin_variable=host.ACTIONS_RUNNER_TOKEN_VARIABLE,
            timeout=_REGISTER_TIMEOUT,
        )

    def _write_job(self, facts: Facts, note: Note, *, is_new: bool) -> Iterator[Command]:
        # config.sh writes the PATH of its own process.
        if is_new or facts.file(_PATH) != _SEARCH_PATH:
            yield Write(
                path=_PATH.path,
                content=_SEARCH_PATH,
                purpose="write the PATH of jobs",
                owner=self._owner,
                before=facts.file(_PATH),
            )
        for folder in (self._agents, note.logs):
            if facts.stat(Stat(folder)) is None:
                yield Folder(path=folder, purpose=f"create the folder {folder}", owner=self._owner)
        current, plist = facts.file(ReadFile(note.plist)), actions_runner_job.render_plist(note)
        if current != plist:
            yield Write(
                path=note.plist,
                content=plist,
                purpose=f"write the job {note.label}",
                owner=self._owner,
                check=launch_daemon.CHECK,
                before=current,
            )

    @property
    def _agents(self) -> str:
        return host.launch_agents(self.user)


def _registered_job(facts: Facts) -> str | None:
    """Return the label of the job of the registration on the Mac; None if there is none."""
    # .NET writes a byte order mark.
    content = (facts.file(_REGISTRATION) or b"").removeprefix(codecs.BOM_UTF8)
    try:
        found = msgspec.json.decode(content, type=_Registration)
    except msgspec.MsgspecError:
        return None
    # A repository has the form owner/name.
    owner = found.git_hub_url.removeprefix(f"{SITE}/").strip("/").replace("/", "-")
    if not (_SAFE.fullmatch(owner) and _SAFE.fullmatch(found.agent_name)):
        return None
    return launchd.actions_runner(owner, found.agent_name)


def _write_note(facts: Facts, note: Note) -> Iterator[Command]:
    if actions_runner_job.read_note(facts) == note:
        return
    if facts.stat(Stat(host.STAMPS_FOLDER)) is None:
        yield drift.CREATE_FOLDER
    yield Write(
        path=NOTE.path,
        content=msgspec.json.format(msgspec.json.encode(note)) + b"\n",
        purpose="record the registration of the runner",
        before=facts.file(NOTE),
    )


def _install_service() -> Run:
    source = f"{host.ACTIONS_RUNNER}/bin/runsvc.sh"
    return Run(
        # A copy: an update of the runner writes to it.
        argv=("install", "-m", "0755", source, _SERVICE.path),
        purpose="install the program of the runner's job",
    )
