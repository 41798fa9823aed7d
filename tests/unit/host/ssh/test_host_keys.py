"""Host keys: trusted on first use, stored by the caller, and required afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bramley.base.errors import BadConfiguration, HostKeyChanged
from bramley.base.secret import Secret
from bramley.host.ssh import AcceptNewHostKey, Credentials, HostKey, Pin, Target, connect

KEY = HostKey("ssh-ed25519", "SHA256:abc", "AAAA")
OTHER = HostKey("ssh-ed25519", "SHA256:def", "BBBB")


def target(pin: Pin) -> Target:
    return Target(
        host="10.0.0.7", user="m1", credentials=Credentials(password=Secret("x")), host_keys=pin
    )


def test_pin_is_learned_stored_as_text_and_forgotten() -> None:
    pin = Pin()
    assert (pin.text, pin.keys_of("h", 22)) == ("", ())

    pin.add("h", 22, KEY)
    assert pin.text == "ssh-ed25519 SHA256:abc"
    assert Pin(pin.text).keys_of("h", 22)[0].is_same(KEY)
    assert not Pin(pin.text).keys_of("h", 22)[0].is_same(OTHER)

    pin.remove("h", 22)
    assert pin.text == ""


def test_pin_of_an_older_release_is_only_a_fingerprint() -> None:
    assert Pin("SHA256:abc\n").keys_of("h", 22)[0].is_same(KEY)


@pytest.mark.parametrize("text", ["abc", "MD5:00:11", "ssh-ed25519 AAAA", "a b SHA256:c"])
def test_invalid_pin_is_refused_with_a_remedy(text: str) -> None:
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
def test_algorithm_of_the_pinned_key_is_preferred(pinned: str, first: str) -> None:
    order = connect.host_key_order(target(Pin(pinned)))

    assert order[0] == first
    assert len(order) == len(set(order)) == 6


def test_first_key_is_trusted_and_another_one_is_refused() -> None:
    pin = Pin(stored_in="the Secret mac-1-bootstrap")
    connect.check_host_key(target(pin), KEY)
    connect.check_host_key(target(pin), KEY)
    with pytest.raises(HostKeyChanged) as caught:
        connect.check_host_key(target(pin), OTHER)

    message = str(caught.value)
    assert message.startswith("m1@10.0.0.7: ")
    assert "ssh-ed25519 SHA256:def; the known key is ssh-ed25519 SHA256:abc" in message
    assert "remove the old key from the Secret mac-1-bootstrap and connect again" in message
    assert pin.text == str(KEY)


def test_new_host_key_is_accepted_once() -> None:
    pin = Pin()
    pin.add("10.0.0.7", 22, KEY)
    accepting = replace(target(pin), accept_new_host_key=AcceptNewHostKey())
    assert pin.text

    connect.check_host_key(accepting, OTHER)

    assert pin.text == str(OTHER)
    with pytest.raises(HostKeyChanged):
        connect.check_host_key(accepting, KEY)


def test_credentials_name_their_kinds_and_hide_their_values() -> None:
    credentials = Credentials(
        private_keys=(Secret("canary-1"),), agent="/tmp/a", password=Secret("canary-2")
    )

    assert credentials.kinds == "key, agent, password"
    assert "canary" not in repr(credentials)
    with pytest.raises(BadConfiguration, match="no credentials"):
        Credentials()
