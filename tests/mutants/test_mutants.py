"""The tier of mutants: those of files changed since the parent commit and a seeded sample of the rest, within a minute."""

from __future__ import annotations

import os
import subprocess

from tools import mutants
from tools.scratch import DEAD, HUNG, INVALID, SURVIVED
from tools.telling import Tell

BUDGET_SECONDS = 50


def commit() -> str:
    told = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=mutants.ROOT, capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or "no commit"


def test_mutants_of_changed_files_and_a_sample_of_the_rest_die(tell: Tell) -> None:
    seed = os.environ.get("MUTANTS_SEED") or commit()
    known = mutants.load(mutants.ROOT / "tests/mutants")
    order = mutants.chosen(known, changed=mutants.changed_files(), seed=seed)

    results = list(mutants.run(order, budget=BUDGET_SECONDS))

    told = mutants.report(results)
    tell("mutants", f"{told} (MUTANTS_SEED={seed})")
    words = [result.verdict.word for result in results]
    assert not {SURVIVED, INVALID, HUNG} & set(words), told
    assert DEAD in words
