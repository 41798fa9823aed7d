"""Whatever a guest writes into its share: the agent reads no other file of the host, does not block, and removes all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bramley.agent.guest import report
from bramley.agent.guest.folders import UserData
from tests import virtual_time

VM = "ns-build-0123456789ab"
SECRET = "secret of the host"
NAMES = st.sampled_from(["runner-rc", "runner.log", ".moved-1", "a", "b", "ü", "x\ny"])
KINDS = st.sampled_from(["file", "folder", "link", "folder link", "loop", "pipe", "hole"])
TREES = st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=4), KINDS), max_size=12)


def make_hole(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**33)


def grow(path: Path, outside: Path, kind: str) -> None:
    """Create one entry if the existing ones allow it."""
    make: dict[str, Callable[[], object]] = {
        "file": lambda: path.write_text("3\n"),
        "folder": path.mkdir,
        "link": lambda: path.symlink_to(outside / "secret"),
        "folder link": lambda: path.symlink_to(outside),
        "loop": lambda: path.symlink_to(path),
        "pipe": lambda: os.mkfifo(path),
        "hole": lambda: make_hole(path),
    }
    # Existing entries are kept: opening a pipe for writing would wait for a reader.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(path):
            make[kind]()


@given(TREES)
def test_nothing_in_a_guests_share_reaches_outside_it(tree: list[tuple[list[str], str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outside = Path(folder, "outside")
        outside.mkdir()
        (outside / "secret").write_text(SECRET)
        folders = UserData(Path(folder, "userdata"))
        status = folders.prepare(VM).status
        for parts, kind in tree:
            # A guest cannot write through its links: their targets do not exist inside its VM.
            if not any(status.joinpath(*parts[:end]).is_symlink() for end in range(len(parts))):
                grow(status.joinpath(*parts), outside, kind)

        tail, code = report.log_tail(folders, VM), report.read(folders, VM).code
        virtual_time.run(folders.remove(VM))

        assert code in {None, 3}
        assert SECRET not in tail
        assert (outside / "secret").read_text() == SECRET
        assert list(folders.root.iterdir()) == []
