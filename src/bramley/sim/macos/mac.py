"""One simulated Mac: its files below a root, its state, and its programs; every process that opens the root sees the same Mac.

Nothing here waits. What takes time is a timestamp in the state, and is carried out by the first read after that time: a login after
loginwindow was restarted, a start after a reboot, a daemon that launchd starts again.
"""

from __future__ import annotations

import os
import shutil
import stat as stats
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from math import inf
from pathlib import Path
from typing import Any

from bramley.base.clock import Clock, SystemClock
from bramley.sim.macos import boot, fresh_install, launchd, loginwindow, programs
from bramley.sim.macos.call import Call, Exit, NotModelled, Result, not_modelled
from bramley.sim.macos.files import Files, copy_tree
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.launchd import FakeSpawner, Spawner
from bramley.sim.macos.state import FOLDER, STATE, Store, persistent_state

NOT_FOUND = 127
NOT_EXECUTABLE = 126
# Modules with events that are due at some time, in the order in which they are carried out: a start before what follows from it.
_EVENT_SOURCES = (boot, loginwindow, launchd)
# Exists while a Mac is being created: the folder contains no complete Mac yet.
_UNFINISHED = "begun"
# Registers a runner with these options of config.sh, and returns why that is refused; empty if it is not.
Forge = Callable[[Mapping[str, str]], str]


class Mac:
    """A Mac in a folder; `spawner` runs the programs of launchd's jobs, by default a fake; without a forge every runner can register."""

    def __init__(
        self,
        root: Path,
        *,
        clock: Clock | None = None,
        spawner: Spawner | None = None,
        can_chown: bool | None = None,
        forge: Forge | None = None,
    ) -> None:
        self.root = root
        self.store = Store(root)
        self._files = Files(root, self.store, can_chown=can_chown)
        self.spawner = spawner or FakeSpawner()
        self.forge = forge
        self._clock = clock or SystemClock()
        self._can_chown = can_chown
        self._next_event: tuple[Mapping[str, Any], float] | None = None

    @classmethod
    def create(cls, root: Path, *, settings: Settings | None = None, **opening: Any) -> Mac:
        """Return a bare Mac, installed in an empty folder."""
        mac = cls(root, **opening)
        mac.install(settings or Settings())
        return mac

    def install(self, settings: Settings) -> None:
        """Lay out a bare Mac and start it; after an interruption this begins again."""
        unfinished = self.root / FOLDER / _UNFINISHED
        # Its state has passwords.
        unfinished.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if unfinished.exists():
            _remove_files(self.root)
        unfinished.touch()
        fresh_install.lay_out(self, settings)
        unfinished.unlink()

    def reinstall(self, settings: Settings) -> None:
        """Erase the disk and install macOS again, as a provider does; it is up at once, with another host key."""
        started_count = self.store.read()["boot"].get("started_count", 0)
        (self.root / FOLDER / _UNFINISHED).touch()
        self.install(settings)
        with self.change() as state:
            # Otherwise this boot would have the id of one before.
            boot.shut_down(self, state)
            state["boot"]["started_count"] = started_count
            boot.start(self, state)

    @staticmethod
    def is_complete(root: Path) -> bool:
        """Return whether a folder contains a complete Mac."""
        folder = root / FOLDER
        return (folder / STATE).exists() and not (folder / _UNFINISHED).exists()

    @staticmethod
    def can_be_created(root: Path) -> bool:
        """Return whether a Mac can be created in a folder: it is missing or empty, or an earlier creation was interrupted."""
        if not root.is_dir() or (root / FOLDER / _UNFINISHED).exists():
            return True
        return all(entry.name == FOLDER for entry in root.iterdir()) and not Mac.is_complete(root)

    def copy(self, root: Path) -> Mac:
        """Return a copy of this Mac in another folder, owners included."""
        _ = self.state
        root.parent.mkdir(parents=True, exist_ok=True)
        copy_tree(str(self.root), str(root))
        return Mac(root, clock=self._clock, spawner=self.spawner, can_chown=self._can_chown)

    def now(self) -> float:
        """Return the time of its clock, in seconds since 1970."""
        return self._now(self.store.read())

    def _now(self, state: Mapping[str, Any]) -> float:
        return self._clock.now().timestamp() + float(state["settings"]["clock_ahead_seconds"])

    @property
    def state(self) -> Mapping[str, Any]:
        """Return its current state, read-only; events that are due are carried out first."""
        state = self.store.read()
        if self.store.is_open:
            return state
        next_event_at = self._next_event_at(state)
        # Mostly there is no event, and the clock need not be read.
        if next_event_at == inf or next_event_at > self._now(state):
            return state
        with self.change():
            pass
        return self.store.read()

    def _next_event_at(self, state: Mapping[str, Any]) -> float:
        """Return the time of the next event; computed once for each state that is read."""
        if self._next_event is None or self._next_event[0] is not state:
            self._next_event = (state, min(part.next_event_at(state) for part in _EVENT_SOURCES))
        return self._next_event[1]

    @contextmanager
    def change(self) -> Iterator[dict[str, Any]]:
        """Yield the state to be changed; it is saved at the end unless an error is raised."""
        if self.store.is_open:
            with self.store.change() as state:
                yield state
            return
        with self.store.change() as state:
            self._run_due_events(state)
            yield state

    def caching(self) -> AbstractContextManager[None]:
        """Cache reads within a block in which no other process changes the Mac."""
        return self.store.caching()

    @property
    def files(self) -> Files:
        """Return its files; events that are due are carried out first."""
        _ = self.state
        return self._files

    @property
    def is_up(self) -> bool:
        """Return whether it runs, and is not restarting."""
        return boot.is_up(self.state)

    def run(self, call: Call) -> Result:
        """Run a program to its end."""
        # Events that are due must be carried out before the program reads the state.
        _ = self.state
        name = call.argv[0].rpartition("/")[2]
        path = self._path(call.argv[0])
        refused = self._refuse(call.argv[0], path)
        if refused is not None:
            return refused
        program = programs.find(name)
        if program is None:
            return self._unmodelled_result(name)
        try:
            return program(self, call)
        except Exit as exited:
            return exited.result
        except NotModelled as error:
            return not_modelled(call, str(error))

    def reboot(self) -> None:
        """Restart it: it is down at once, and up after `boot_seconds`."""
        with self.change() as state:
            boot.shut_down(self, state)

    def shut_down(self) -> None:
        """Shut it down; it stays off."""
        with self.change() as state:
            boot.shut_down(self, state, restarts=False)

    def snapshot(self) -> dict[str, Any]:
        """Return its files and lasting state, to compare two Macs: without times, process ids, counters and identities."""
        state = {
            key: value
            for key, value in persistent_state(dict(self.state)).items()
            if key != "owners"
        }
        with self.caching():
            files = {path: self.describe_file(path, stat) for path, stat in self.files.facts()}
        return {"files": files, "state": state}

    def describe_file(self, path: str, stat: os.stat_result) -> list[str]:
        """Return the kind, mode, owner and digest or target of a file."""
        mode, owner = f"{stats.S_IMODE(stat.st_mode):04o}", self.files.owner_of(path, stat)
        if stats.S_ISLNK(stat.st_mode):
            return ["link", owner, self.files.target(path)]
        if stats.S_ISREG(stat.st_mode):
            return ["file", mode, owner, self.files.digest(path)]
        return ["folder" if stats.S_ISDIR(stat.st_mode) else "other", mode, owner]

    def _path(self, word: str) -> str:
        """Return the path of a program that does not come with macOS; empty for one that does."""
        name = word.rpartition("/")[2]
        if word.startswith(launchd.WITH_MACOS):
            return ""
        if "/" in word:
            return word
        if programs.find(name) is not None:
            return ""
        paths = [f"{folder}/{name}" for folder in fresh_install.SEARCHED]
        return next((path for path in paths if self.files.is_executable(path)), paths[0])

    def _refuse(self, word: str, path: str) -> Result | None:
        if path and not self.files.is_file(path):
            return Result(NOT_FOUND, err=f"sh: {word}: command not found\n")
        if path and not self.files.is_executable(path):
            return Result(NOT_EXECUTABLE, err=f"sh: {word}: Permission denied\n")
        return None

    def _unmodelled_result(self, name: str) -> Result:
        """Return the result of a program that is not modelled: from the state's `answers`, or empty."""
        return Result(*self.state["answers"].get(name, (0, "")))

    def _run_due_events(self, state: dict[str, Any]) -> None:
        """Carry out the events that are due."""
        now = self.now()
        for part in _EVENT_SOURCES:
            if part.next_event_at(state) <= now:
                part.run_due_events(self, state)


def _remove_files(root: Path) -> None:
    """Remove what was laid out; files of the caller in the state folder, such as a held lock, stay."""
    for entry in root.iterdir():
        if entry.is_symlink() or entry.is_file():
            entry.unlink()
        elif entry.name != FOLDER:
            shutil.rmtree(entry)
