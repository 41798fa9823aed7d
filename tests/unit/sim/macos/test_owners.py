"""Owners kept by the kernel and owners kept in the state are the same after any file operations."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.sim.macos.files import Files
from bramley.sim.macos.mac import Mac

# Each example has its own number, so that all can share two Macs.
PATHS = ("/opt/{0}/a", "/opt/{0}/a/x", "/opt/{0}/b", "/Users/m1/{0}/a", "/Users/m1/{0}/a/x")
FOLDERS = ("/opt/{0}", "/Users/m1/{0}")
OWNERS = ("root:wheel", "m1:staff", "root:admin", "no-such-user:staff")
Act = Callable[[Files, int], None]

paths, owners = st.sampled_from(PATHS), st.sampled_from(OWNERS)
acts: st.SearchStrategy[Act] = st.one_of(
    st.builds(
        lambda path, owner: lambda files, at: files.write(path.format(at), b"", owner=owner),
        paths,
        owners,
    ),
    st.builds(
        lambda path, owner: lambda files, at: files.make_folder(path.format(at), owner=owner),
        paths,
        owners,
    ),
    st.builds(
        lambda path, owner: lambda files, at: files.chown(path.format(at), owner), paths, owners
    ),
    st.builds(
        lambda path, to: lambda files, at: files.link(path.format(at), to.format(at)), paths, paths
    ),
    st.builds(
        lambda path, to: lambda files, at: files.rename(path.format(at), to.format(at)),
        paths,
        paths,
    ),
    st.builds(lambda path: lambda files, at: files.remove(path.format(at)), paths),
)
numbers = count()


@pytest.fixture(scope="module")
def macs(tmp_path_factory: pytest.TempPathFactory) -> list[Mac]:
    folder = tmp_path_factory.mktemp("macs")
    return [Mac.create(folder / str(by), can_chown=by) for by in (True, False)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
@given(done=st.lists(acts, max_size=12))
def test_kernel_and_state_have_the_same_owners(macs: list[Mac], done: list[Act]) -> None:
    at = next(numbers)
    begin: list[Act] = [partial(_lay_out, folder) for folder in FOLDERS]
    for act in (*begin, *done):
        assert len({_outcome(act, mac.files, at) for mac in macs}) == 1

    owners = [
        [
            (path, mac.files.owner_of(path, seen))
            for folder in FOLDERS
            for path, seen in mac.files.facts(folder.format(at))
        ]
        for mac in macs
    ]
    assert owners[0] == owners[1]


def _lay_out(folder: str, files: Files, at: int) -> None:
    files.make_folder(folder.format(at))


def _outcome(act: Act, files: Files, at: int) -> type[Exception] | None:
    try:
        act(files, at)
    except (OSError, LookupError) as error:
        return type(error)
    return None
