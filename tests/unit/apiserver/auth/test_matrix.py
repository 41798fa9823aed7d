"""The authorisation matrix: what each kind of caller may do with everything that is served, against `matrix.yaml`.

The file names what is allowed, by caller, place and verbs; whatever else is served must be refused.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.unit import example_counts
from tests.unit.apiserver.auth.matrix import Question, a_scene

# A fast run checks one of so many cases; a prime, so that all users and verbs are covered.
SOME = 7
FILE = Path(__file__).with_name("matrix.yaml")
Right = tuple[str, str, str, str]


def expected() -> set[Right]:
    """Return the table as caller, place, resource and verb."""
    return {
        (person, place, what, verb)
        for person, places in yaml.safe_load(FILE.read_text()).items()
        for place, groups in (places or {}).items()
        for verbs, resources in groups.items()
        for what in resources.split()
        for verb in verbs.split()
    }


def right(person: str, question: Question) -> Right:
    return person, question.place, question.what, question.verb


async def test_each_user_may_do_what_the_table_lists_and_nothing_else() -> None:
    async with a_scene() as scene:
        served = {right(person, one): one for person in scene.people for one in scene.questions}
        sampled = dict(list(served.items())[:: 1 if example_counts.share() == 1 else SOME])
        given = {key for key, one in sampled.items() if await scene.allows(key[0], one)}

    allowed_in_table = expected()
    assert allowed_in_table <= set(served), "in the table, but not served"
    allowed_in_table &= set(sampled)
    assert given - allowed_in_table == set(), "allowed, but not in the table"
    assert allowed_in_table - given == set(), "in the table, but refused"
    assert len(served) > 10_000
    assert set(yaml.safe_load(FILE.read_text())) == set(scene.people)
