from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.providers.os_families import Image, is_of_family, newest_image, version_key

TYPE = "M2-L"


def image(name: str, version: str, **fields: object) -> Image:
    return Image(f"{name}-{version}", (name,), version, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("os", "names", "expected"),
    [
        ("Tahoe", ("Tahoe",), True),
        ("macos-tahoe-26.3", ("Tahoe", "macos-tahoe-26.0"), True),
        ("tahoe", ("", "macos-tahoe-26.0"), True),
        ("Golden Gate", ("macos-golden-gate-27.0",), True),
        ("macos-golden-gate-27.0", ("golden_gate",), True),
        ("tahoe", ("devos-tahoe",), False),
        ("tahoe", ("Sequoia", "macos-sequoia-15.6"), False),
        ("tahoe", ("tahoe2",), False),
        ("tahoe", (), False),
        ("", ("",), False),
        ("macos-", ("macos-",), False),
    ],
)
def test_family(os: str, names: tuple[str, ...], expected: bool) -> None:
    assert is_of_family(names, os) is expected


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("26.9", "26.10"),
        ("26", "26.0.1"),
        ("15.7", "26.0"),
        ("27.0-beta", "27.0"),
        ("27.0-beta2", "27.0-beta10"),
        ("27.0 RC", "27.0"),
        ("26.3", "27.0-beta"),
        ("", "1"),
        ("unknown", "1"),
    ],
)
def test_versions_are_ordered(older: str, newer: str) -> None:
    assert version_key(older) < version_key(newer)


def test_trailing_zeros_do_not_count() -> None:
    assert version_key("26") == version_key("26.0") == version_key(" 26.0.0 ")


@given(st.lists(st.text(alphabet="0123456789.-ab ²", max_size=8), min_size=2))
def test_any_versions_can_be_sorted(versions: list[str]) -> None:
    keys = [version_key(each) for each in versions]

    assert sorted(keys) == sorted(keys, reverse=True)[::-1]


def test_newest_image_is_of_the_family_and_runs_on_the_type() -> None:
    images = [
        image("macos-tahoe-26.2", "26.2"),
        image("macos-tahoe-26.10", "26.10", types=frozenset({TYPE, "M4-S"})),
        image("macos-tahoe-26.11", "26.11", types=frozenset({"M4-S"})),
        image("macos-tahoe-27.0", "27.0", is_beta=True),
        image("macos-sequoia-28.0", "28.0"),
    ]

    found = newest_image(images, os="macos-tahoe-26.0", type=TYPE)

    assert found is not None
    assert found.version == "26.10"


def test_beta_is_chosen_only_without_a_release() -> None:
    betas = [image("tahoe", "27.0-beta1", is_beta=True), image("tahoe", "27.0-beta2", is_beta=True)]
    newest = newest_image(betas, os="tahoe", type=TYPE)

    assert newest is not None
    assert newest.version == "27.0-beta2"
    assert newest_image(betas, os="sequoia", type=TYPE) is None


def test_newer_xcode_is_chosen_for_the_same_release() -> None:
    plain, xcode = image("tahoe", "26.3"), image("tahoe", "26.3", xcode_version="26.2")

    assert newest_image([xcode, plain], os="tahoe", type=TYPE) == xcode


images = st.builds(
    Image,
    id=st.text(alphabet="abc", max_size=3),
    os_names=st.sampled_from([("tahoe",), ("sequoia",), ("macos-tahoe-26.1",)]),
    version=st.sampled_from(["26.1", "26.2", "26.2-beta", "26.10", ""]),
    is_beta=st.booleans(),
    types=st.sampled_from([frozenset(), frozenset({TYPE}), frozenset({"M4-S"})]),
)


@given(st.lists(images), st.randoms(use_true_random=False))
def test_choice_is_of_the_list_and_independent_of_its_order(
    given_images: list[Image], rng: random.Random
) -> None:
    found = newest_image(given_images, os="tahoe", type=TYPE)
    shuffled = rng.sample(given_images, len(given_images))

    other = newest_image(shuffled, os="tahoe", type=TYPE)

    fitting = [
        each
        for each in given_images
        if each.os_names != ("sequoia",) and each.types != frozenset({"M4-S"})
    ]
    assert (found is None) == (not fitting)
    if found is not None and other is not None:
        assert (found.id, found.version) == (other.id, other.version)
        assert found in fitting
        assert not found.is_beta or all(each.is_beta for each in fitting)
