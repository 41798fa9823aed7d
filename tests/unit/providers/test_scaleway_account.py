from __future__ import annotations

import pytest

from bramley.base import errors
from bramley.providers.scaleway_account import DEFAULT_API_URL, account_from

VALUES = {
    "SCW_ACCESS_KEY": "SCW0123456789ABCDEFG",
    "SCW_SECRET_KEY": "11111111-1111-4111-8111-c0ffeec0ffee",
    "SCW_DEFAULT_PROJECT_ID": "22222222-2222-4222-8222-222222222222",
}


def test_values_are_trimmed_and_the_secret_is_hidden() -> None:
    account = account_from({name: f" {value}\n" for name, value in VALUES.items()})

    assert account.secret_key.reveal() == VALUES["SCW_SECRET_KEY"]
    assert account.api_url == DEFAULT_API_URL
    assert "c0ffee" not in repr(account)


def test_all_that_is_missing_or_invalid_is_named_without_its_value() -> None:
    with pytest.raises(errors.BadConfiguration) as raised:
        account_from(VALUES | {"SCW_SECRET_KEY": "c0ffee", "SCW_DEFAULT_PROJECT_ID": ""})

    assert str(raised.value) == "missing or invalid: SCW_SECRET_KEY, SCW_DEFAULT_PROJECT_ID"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8080", "https://api.example.com/", "http://[::1]:1"]
)
def test_https_or_loopback_is_accepted(url: str) -> None:
    assert account_from(VALUES | {"SCW_API_URL": url}).api_url == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.com",
        "https://u:p@h",
        "https://",
        "ftp://h",
        "https://h?x=1",
        "http://[",
        "h",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(errors.BadConfiguration, match="SCW_API_URL"):
        account_from(VALUES | {"SCW_API_URL": url})
