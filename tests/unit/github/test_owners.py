from __future__ import annotations

import pytest

from bramley.base import errors
from bramley.github.owners import Organisation, Repository


def test_paths_of_owners() -> None:
    assert Organisation("acme").path == "/orgs/acme"
    assert Repository("jane_corp", ".github").path == "/repos/jane_corp/.github"


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "a?b", "a b", "a%2f", "a\n", "x" * 101])
def test_name_that_changes_the_path_is_refused(name: str) -> None:
    with pytest.raises(errors.BadRequest):
        Repository("acme", name)
    with pytest.raises(errors.BadRequest):
        Organisation(name)
