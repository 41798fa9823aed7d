"""The tier of mutants: those of files changed since the parent commit and a seeded sample of the others, within a minute."""

from __future__ import annotations

import os
import subprocess

from tools import mutants
from tools.scratch import HUNG, INVALID, KILLED, SURVIVED

BUDGET_SECONDS = 50


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=mutants.ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "no commit"


def test_mutants_of_changed_files_and_a_sample_of_the_others_are_killed() -> None:
    seed = os.environ.get("MUTANTS_SEED") or commit()
    known = mutants.load(mutants.ROOT / "tests/mutants")
    order = mutants.in_order(known, changed=mutants.changed_files(), seed=seed)

    results = list(mutants.run(order, budget=BUDGET_SECONDS))

    outcomes = {result.verdict.outcome for result in results}
    summary = f"{mutants.report(results)} (MUTANTS_SEED={seed})"
    assert not {SURVIVED, INVALID, HUNG} & outcomes, summary
    assert KILLED in outcomes, summary
