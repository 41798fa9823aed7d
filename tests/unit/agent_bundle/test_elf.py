"""Where a Linux binary looks for its libraries can be rewritten in place, and only there."""

from __future__ import annotations

import pytest

from bramley.app.agent_bundle import elf
from bramley.base.errors import BadConfiguration
from tests.unit.agent_bundle import binaries

BEFORE = "/opt/python/3.11.7/lib:/opt/openssl/lib"
AFTER = "$ORIGIN/../lib:/opt/openssl/lib"


@pytest.mark.parametrize("tags", [(29,), (15,), (15, 29)], ids=["runpath", "rpath", "both"])
def test_the_search_path_is_rewritten_and_nothing_else(tags: tuple[int, ...]) -> None:
    before = binaries.elf(BEFORE, tags=tags)

    after = elf.with_search_path(before, lambda _: AFTER)

    assert elf.search_path(before) == BEFORE
    assert elf.search_path(after) == AFTER
    assert after == before.replace(BEFORE.encode(), AFTER.encode().ljust(len(BEFORE), b"\0"))


def test_a_longer_path_is_refused_rather_than_written_over_what_follows() -> None:
    with pytest.raises(
        BadConfiguration, match=r"\$ORIGIN/../lib does not fit in the place of /lib"
    ):
        elf.with_search_path(binaries.elf("/lib"), lambda _: "$ORIGIN/../lib")


@pytest.mark.parametrize("other", [binaries.elf(None), binaries.mach_o(), b"#!/bin/sh\n", b""])
def test_what_has_no_search_path_stays_as_it_is(other: bytes) -> None:
    assert elf.search_path(other) == ""
    assert elf.with_search_path(other, lambda _: "elsewhere") == other
