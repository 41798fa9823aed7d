"""Host keys: trusted once, kept by the caller, and required ever after."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bramley.base.errors import BadConfiguration, HostKeyChanged
from bramley.base.secret import Secret
from bramley.host.ssh import Credentials, HostKey, Pin, Target, TrustAgain, dialling

KEY = HostKey("ssh-ed25519", "SHA256:abc", "AAAA")
OTHER = HostKey("ssh-ed25519", "SHA256:def", "BBBB")


def target(pin: Pin) -> Target:
    return Target(
        host="10.0.0.7", user="m1", credentials=Credentials(password=Secret("x")), host_keys=pin
    )


def test_a_pin_is_learned_kept_as_text_and_forgotten() -> None:
    pin = Pin()
    assert (pin.text, pin.known("h", 22)) == ("", ())

    pin.learn("h", 22, KEY)
    assert pin.text == "ssh-ed25519 SHA256:abc"
    assert Pin(pin.text).known("h", 22)[0].is_same(KEY)
    assert not Pin(pin.text).known("h", 22)[0].is_same(OTHER)

    pin.forget("h", 22)
    assert pin.text == ""


def test_a_pin_of_an_older_release_is_a_fingerprint_alone() -> None:
    assert Pin("SHA256:abc\n").known("h", 22)[0].is_same(KEY)


@pytest.mark.parametrize("text", ["abc", "MD5:00:11", "ssh-ed25519 AAAA", "a b SHA256:c"])
def test_a_pin_that_is_none_is_refused_and_told_how_to_get_one(text: str) -> None:
    with pytest.raises(BadConfiguration, match="ssh-keygen -lf"):
        Pin(text)


@pytest.mark.parametrize(
    ("pinned", "first"),
    [
        ("", "ssh-ed25519"),
        ("ssh-ed25519 SHA256:a", "ssh-ed25519"),
        ("ecdsa-sha2-nistp256 SHA256:a", "ecdsa-sha2-nistp256"),
        ("ssh-rsa SHA256:a", "rsa-sha2-512"),
        ("SHA256:a", "ssh-ed25519"),
    ],
)
def test_a_server_with_several_keys_is_asked_for_the_kind_that_is_pinned(
    pinned: str, first: str
) -> None:
    order = dialling.host_key_order(target(Pin(pinned)))

    assert order[0] == first
    assert len(order) == len(set(order)) == 6


def test_the_first_key_is_trusted_and_another_one_refused_with_what_to_do() -> None:
    from bramley.host.ssh import client

    pin = Pin(kept_in="the Secret mac-1-bootstrap")
    client.require(target(pin), KEY)
    client.require(target(pin), KEY)
    with pytest.raises(HostKeyChanged) as caught:
        client.require(target(pin), OTHER)

    told = str(caught.value)
    assert told.startswith("m1@10.0.0.7: ")
    assert "shows ssh-ed25519 SHA256:def, known is ssh-ed25519 SHA256:abc" in told
    assert "remove the old key from the Secret mac-1-bootstrap and connect again" in told
    assert pin.text == str(KEY)


def test_a_host_is_trusted_again_once_and_when_it_shows_a_key() -> None:
    from bramley.host.ssh import client

    pin = Pin()
    pin.learn("10.0.0.7", 22, KEY)
    again = replace(target(pin), trust_again=TrustAgain())
    assert pin.text

    client.require(again, OTHER)

    assert pin.text == str(OTHER)
    with pytest.raises(HostKeyChanged):
        client.require(again, KEY)


def test_credentials_name_their_kinds_and_hide_themselves() -> None:
    credentials = Credentials(
        private_keys=(Secret("canary-1"),), agent="/tmp/a", password=Secret("canary-2")
    )

    assert credentials.told == "key, agent, password"
    assert "canary" not in repr(credentials)
    with pytest.raises(BadConfiguration, match="no credentials"):
        Credentials()
