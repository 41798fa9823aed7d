"""The identity with which Scaleway's API is called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from bramley.base import errors
from bramley.base.secret import Secret

ACCESS_KEY = "SCW_ACCESS_KEY"
SECRET_KEY = "SCW_SECRET_KEY"  # noqa: S105 - the name of a variable
PROJECT_ID = "SCW_DEFAULT_PROJECT_ID"
API_URL = "SCW_API_URL"
DEFAULT_API_URL = "https://api.scaleway.com"

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_FORMS = {ACCESS_KEY: r"SCW[0-9A-Z]{17}", SECRET_KEY: _UUID, PROJECT_ID: _UUID}
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


@dataclass(frozen=True, slots=True)
class Account:
    """An API key, and the project whose hosts and SSH keys it manages."""

    access_key: str
    secret_key: Secret
    project_id: str
    api_url: str = DEFAULT_API_URL


def account_from(values: Mapping[str, str]) -> Account:
    """Return the account in these variables, from the environment or from files of these names.

    BadConfiguration names all that are missing or invalid, and shows no value.
    """
    found = {name: values.get(name, "").strip() for name in _FORMS}
    wrong = [name for name, form in _FORMS.items() if re.fullmatch(form, found[name]) is None]
    if wrong:
        raise errors.BadConfiguration(f"missing or invalid: {', '.join(wrong)}")
    url = values.get(API_URL, "").strip() or DEFAULT_API_URL
    return Account(found[ACCESS_KEY], Secret(found[SECRET_KEY]), found[PROJECT_ID], _checked(url))


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_private = parts.scheme == "https" or (
            parts.scheme == "http" and parts.hostname in _LOOPBACK
        )
        is_plain = not (parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        is_private = is_plain = False
    if not (is_private and is_plain and parts.hostname):
        raise errors.BadConfiguration(
            f"{API_URL} must begin with https:// and a host, without user and query; "
            "http:// is for loopback addresses only"
        )
    return url.rstrip("/")
