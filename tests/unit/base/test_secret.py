from __future__ import annotations

import copy
import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.base.secret import HIDDEN, Secret, redact


@given(st.text(min_size=12, alphabet=st.characters(categories=["L", "N"])))
def test_value_is_never_printed(value: str) -> None:
    secret = Secret(value)

    shown = f"{secret} {secret!r} {secret:>80} {[secret]}"

    assert value not in shown
    assert secret.reveal() == value


def test_a_secret_is_not_pickled_copied_or_encoded() -> None:
    secret = Secret("hunter2")

    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        copy.deepcopy(secret)
    with pytest.raises(TypeError):
        msgspec.json.encode({"token": secret})


def test_secrets_are_compared_by_value_and_never_equal_their_text() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2


def test_an_empty_secret_is_false() -> None:
    assert not Secret("")
    assert Secret("x")


def test_redact_hides_every_occurrence_of_every_secret() -> None:
    text = redact("curl -H hunter2 hunter2 s3cret", Secret("hunter2"), Secret("s3cret"))

    assert text == f"curl -H {HIDDEN} {HIDDEN} {HIDDEN}"


def test_redact_with_an_empty_secret_leaves_the_text_alone() -> None:
    assert redact("text", Secret("")) == "text"


def test_redact_hides_the_longer_of_two_overlapping_secrets() -> None:
    assert "er2" not in redact("hunter2", Secret("hunt"), Secret("hunter2"))
