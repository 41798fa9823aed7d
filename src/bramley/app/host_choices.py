"""Which steps are meant by --only and --skip: of a preparation, of a leave, and of what a configuration asks for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host import preparing, removing, sequence
from bramley.host.step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What is prepared on a Mac, with its user's password."""

    password: Secret
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    def steps(self, user: str) -> list[Step]:
        """Return the steps that are meant."""
        found = preparing.steps(user, self.password)
        return _some(chosen(found, only=self.only, skip=self.skip, names=preparing.NAMES), found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """What is taken away from a Mac."""

    keep_tart: bool = True
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    def steps(self, user: str) -> list[Step]:
        """Return the steps that are meant, each of which takes something away."""
        names = [step.name for step in removing.steps(user, keep_tart=False)]
        found = removing.steps(user, keep_tart=self.keep_tart)
        return _some(chosen(found, only=self.only, skip=self.skip, names=names), found)


def chosen(
    steps: Sequence[Step],
    *,
    only: Collection[str],
    skip: Collection[str],
    names: Sequence[str] = sequence.NAMES,
) -> list[Step]:
    """Return the steps that are meant; a name that no step has is refused."""
    unknown = sorted({*only, *skip} - {*names})
    if unknown:
        raise BadConfiguration(
            f"no step is called {', '.join(unknown)}; there are {', '.join(names)}"
        )
    wanted = [step for step in steps if not only or step.name in only]
    return [step for step in wanted if step.name not in skip]


def _some(meant: list[Step], steps: Sequence[Step]) -> list[Step]:
    """Refuse a choice that leaves nothing: whoever made it would be told that all is well."""
    if not meant:
        names = ", ".join(step.name for step in steps)
        raise BadConfiguration(f"--only and --skip leave nothing to do of {names}")
    return meant
