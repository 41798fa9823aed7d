"""One simulated Mac: its files below a root, its state, and its programs; every process that opens the root sees the same Mac.

Nothing here waits. What takes time is a moment in the state, and has happened as soon as somebody looks after it has come: a
login after loginwindow was kicked, a start after a reboot, a daemon that launchd starts again.
"""

from __future__ import annotations

import os
import shutil
import stat as stats
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

from bramley.base.clock import Clock, SystemClock
from bramley.sim.macos import boot, fresh_install, launchd, loginwindow, programs
from bramley.sim.macos.call import Call, Result
from bramley.sim.macos.files import Files, copy_tree
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.launchd import FakeSpawner, Spawner
from bramley.sim.macos.state import FOLDER, STATE, Store, lasting

NOT_FOUND = 127
NOT_EXECUTABLE = 126
# What happens by itself when its moment has come.
_PARTS = (boot, loginwindow, launchd)
# There while a Mac is being made: what lies beside it then is no Mac yet.
_BEGUN = "begun"


class Mac:
    """A Mac in a folder; `spawner` runs what launchd starts, and pretends to where none is given."""

    def __init__(
        self,
        root: Path,
        *,
        clock: Clock | None = None,
        spawner: Spawner | None = None,
        gives_away: bool | None = None,
    ) -> None:
        self.root = root
        self.store = Store(root)
        self._files = Files(root, self.store, gives_away=gives_away)
        self.spawner = spawner or FakeSpawner()
        self._clock = clock or SystemClock()
        self._gives_away = gives_away
        self._judged: tuple[Mapping[str, Any], float] | None = None

    @classmethod
    def make(cls, root: Path, *, settings: Settings | None = None, **opening: Any) -> Mac:
        """Lay out a bare Mac in an empty folder and start it, or anew where that was cut short; the rest is as for opening one."""
        begun = root / FOLDER / _BEGUN
        # Its state holds passwords.
        begun.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if begun.exists():
            _clear(root)
        begun.touch()
        mac = cls(root, **opening)
        fresh_install.lay_out(mac, settings or Settings())
        begun.unlink()
        return mac

    @staticmethod
    def is_made(root: Path) -> bool:
        """Return whether a folder holds a whole Mac."""
        kept = root / FOLDER
        return (kept / STATE).exists() and not (kept / _BEGUN).exists()

    @staticmethod
    def may_be_made(root: Path) -> bool:
        """Return whether a folder holds nothing of anybody's: it is not there, is empty, or making a Mac in it was cut short."""
        if not root.is_dir() or (root / FOLDER / _BEGUN).exists():
            return True
        return all(one.name == FOLDER for one in root.iterdir()) and not Mac.is_made(root)

    def copy(self, root: Path) -> Mac:
        """Make another Mac that is as this one is now, owners included."""
        _ = self.state
        root.parent.mkdir(parents=True, exist_ok=True)
        copy_tree(str(self.root), str(root))
        return Mac(root, clock=self._clock, spawner=self.spawner, gives_away=self._gives_away)

    def now(self) -> float:
        """Return what its clock shows, in seconds since 1970."""
        return self._now(self.store.read())

    def _now(self, state: Mapping[str, Any]) -> float:
        return self._clock.now().timestamp() + float(state["settings"]["clock_ahead_seconds"])

    @property
    def state(self) -> Mapping[str, Any]:
        """Return its state as it is now, to be read only."""
        state = self.store.read()
        if self.store.is_open:
            return state
        moment = self._moment(state)
        # Mostly nothing is to happen, and then it does not matter what time it is.
        if moment == inf or moment > self._now(state):
            return state
        with self.change():
            pass
        return self.store.read()

    def _moment(self, state: Mapping[str, Any]) -> float:
        """Return when something is to happen next; worked out once for each state that is read."""
        if self._judged is None or self._judged[0] is not state:
            self._judged = (state, min(part.moment(state) for part in _PARTS))
        return self._judged[1]

    @contextmanager
    def change(self) -> Iterator[dict[str, Any]]:
        """Give out the state to be changed; all of it is kept at the end, or nothing if an error came."""
        if self.store.is_open:
            with self.store.change() as state:
                yield state
            return
        with self.store.change() as state:
            self._settle(state)
            yield state

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Take the block for one moment in which nobody else does anything to the Mac: it may then ask as often as it likes."""
        with self.store.moment.at_once():
            yield

    @property
    def files(self) -> Files:
        """Return its files as they are now: what is due has happened to them."""
        _ = self.state
        return self._files

    @property
    def is_up(self) -> bool:
        """Return whether it runs, and is not just restarting."""
        return boot.is_up(self.state)

    def run(self, call: Call) -> Result:
        """Run a program to its end."""
        # Looked at first, so that what is due has happened before the program sees it.
        _ = self.state
        name = call.argv[0].rpartition("/")[2]
        path = self._path(call.argv[0])
        refused = self._refuse(call.argv[0], path)
        if refused is not None:
            return refused
        program = programs.find(name)
        return self._answer(name) if program is None else program(self, call)

    def reboot(self) -> None:
        """Restart it: it is gone at once, and back after a while."""
        with self.change() as state:
            boot.go_down(self, state)

    def snapshot(self) -> dict[str, Any]:
        """Return its files and lasting state, to compare two Macs: without times, process ids, counters and identities."""
        state = {key: value for key, value in lasting(dict(self.state)).items() if key != "owners"}
        with self.at_once():
            files = {path: self.describe_file(path, found) for path, found in self.files.facts()}
        return {"files": files, "state": state}

    def describe_file(self, path: str, found: os.stat_result) -> list[str]:
        """Return the kind, mode, owner and digest or target of a file."""
        mode, owner = f"{stats.S_IMODE(found.st_mode):04o}", self.files.owner_of(path, found)
        if stats.S_ISLNK(found.st_mode):
            return ["link", owner, self.files.target(path)]
        if stats.S_ISREG(found.st_mode):
            return ["file", mode, owner, self.files.digest(path)]
        return ["folder" if stats.S_ISDIR(found.st_mode) else "other", mode, owner]

    def _path(self, word: str) -> str:
        """Return where a program lies that does not come with macOS; empty for one that does."""
        name = word.rpartition("/")[2]
        if word.startswith(launchd.WITH_MACOS):
            return ""
        if "/" in word:
            return word
        if programs.find(name) is not None:
            return ""
        places = [f"{folder}/{name}" for folder in fresh_install.SEARCHED]
        return next((place for place in places if self.files.is_executable(place)), places[0])

    def _refuse(self, word: str, path: str) -> Result | None:
        if path and not self.files.is_file(path):
            return Result(NOT_FOUND, err=f"sh: {word}: command not found\n")
        if path and not self.files.is_executable(path):
            return Result(NOT_EXECUTABLE, err=f"sh: {word}: Permission denied\n")
        return None

    def _answer(self, name: str) -> Result:
        """Answer for a program of which nothing is known but that it is there: as the state has it, or with nothing."""
        return Result(*self.state["answers"].get(name, (0, "")))

    def _settle(self, state: dict[str, Any]) -> None:
        """Let happen what is due, a start before what follows from it."""
        now = self.now()
        for part in _PARTS:
            if part.moment(state) <= now:
                part.settle(self, state)


def _clear(root: Path) -> None:
    """Take away what was laid out; what belongs to whoever makes the Mac, such as a lock that is held, stays."""
    for one in root.iterdir():
        if one.is_symlink() or one.is_file():
            one.unlink()
        elif one.name != FOLDER:
            shutil.rmtree(one)
