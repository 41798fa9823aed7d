from __future__ import annotations

import base64
import codecs
import pickle
import re
from datetime import UTC, datetime, timedelta

import jwt
import pytest

from bramley.base import errors
from bramley.github import app_keys
from bramley.github.app_keys import AppCredentials
from tests import github_keys

NOON = datetime(2026, 1, 1, 12, 0, 0, 700_000, tzinfo=UTC)


@pytest.mark.parametrize("form", ["pkcs1", "pkcs8"])
def test_rsa_keys_in_both_formats_sign_verifiable_tokens(form: str) -> None:
    token = github_keys.credentials(form=form, app_id="42").token(NOON).reveal()

    public = github_keys.rsa_key().public_key()
    claims = jwt.decode(token, public, algorithms=["RS256"], options={"verify_exp": False})
    assert claims["iss"] == "42"
    assert jwt.get_unverified_header(token) == {"alg": "RS256", "typ": "JWT"}


def test_token_is_backdated_by_a_minute_and_valid_for_ten_at_most() -> None:
    token = github_keys.credentials().token(NOON).reveal()

    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["iat"] == int(NOON.timestamp()) - 60
    assert claims["exp"] - int(NOON.timestamp()) == 9 * 60
    assert claims["exp"] - claims["iat"] <= timedelta(minutes=10).total_seconds()


@pytest.mark.parametrize("found", github_keys.other_contents().keys())
def test_other_content_is_named_and_no_part_of_it_is_shown(found: str) -> None:
    content = github_keys.other_contents()[found]

    with pytest.raises(errors.BadConfiguration) as raised:
        app_keys.load(content, "/etc/app.pem")

    message = str(raised.value)
    assert message.startswith("/etc/app.pem: expected the RSA private key of a GitHub App")
    assert found in message
    assert raised.value.__cause__ is None
    material = re.findall(rb"[A-Za-z0-9+/]{20,}", content)
    assert [each for each in material if each.decode() in message] == []


def test_text_around_the_key_and_windows_line_ends_are_accepted() -> None:
    content = (
        codecs.BOM_UTF8
        + b"# App key\r\n"
        + github_keys.pem(github_keys.rsa_key()).replace(b"\n", b"\r\n")
    )

    assert app_keys.load(content).fingerprint == github_keys.app_key().fingerprint


def test_fingerprint_is_the_hash_of_the_public_key() -> None:
    fingerprint = github_keys.app_key().fingerprint

    kind, _, digest = fingerprint.partition(":")
    assert kind == "SHA256"
    assert len(base64.b64decode(digest)) == 32
    assert fingerprint != github_keys.app_key("second").fingerprint


def test_key_is_hidden_and_cannot_be_pickled() -> None:
    credentials = github_keys.credentials()

    assert repr(credentials.key) == f"AppKey({credentials.key.fingerprint})"
    assert "RSAPrivateKey" not in repr(credentials)
    with pytest.raises(TypeError):
        pickle.dumps(credentials)


@pytest.mark.parametrize("app_id", ["", "1 2", "1\n", "../1"])
def test_invalid_app_id_is_rejected(app_id: str) -> None:
    with pytest.raises(errors.BadConfiguration, match="the App ID is not valid"):
        AppCredentials(app_id, github_keys.app_key())
