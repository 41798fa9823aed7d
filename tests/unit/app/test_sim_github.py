"""`bramley sim github` reports invalid settings before it serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bramley.app import sim_github
from bramley.app.listen_address import Address
from bramley.base.errors import Refused
from tests import github_keys


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"repositories": ("acme",)}, "--repository 'acme' is not OWNER/NAME"),
        ({"repositories": ("acme/app", "acme/../x")}, "is not a valid name"),
        ({"webhook_url": "http://127.0.0.1:1/x"}, "--webhook-url needs --webhook-secret-file"),
        (
            {"webhook_url": "http://example.com", "webhook_secret_file": "secret"},
            "--webhook-url must begin with",
        ),
        (
            {"webhook_url": "localhost:8080/canary", "webhook_secret_file": "secret"},
            "--webhook-url must begin with",
        ),
        (
            {"webhook_url": "http://127.0.0.1:1/x?canary=1", "webhook_secret_file": "secret"},
            "have no query",
        ),
        ({"webhook_url": "http://127.0.0.1:1", "webhook_secret_file": "empty"}, "is empty"),
        ({"webhook_url": "http://127.0.0.1:1", "webhook_secret_file": "missing"}, "cannot be read"),
        ({"private_key_file": "secret"}, "expected the RSA private key"),
    ],
)
def test_invalid_setting_is_refused(tmp_path: Path, given: dict[str, Any], match: str) -> None:
    (tmp_path / "secret").write_text("canary")
    (tmp_path / "empty").touch()
    key = tmp_path / "app.pem"
    key.write_bytes(github_keys.pem(github_keys.rsa_key()))
    files = {name: tmp_path / value for name, value in given.items() if name.endswith("_file")}
    settings = sim_github.Settings(
        **{"listen": Address("127.0.0.1", 0), "private_key_file": key, **given, **files}
    )

    with pytest.raises(Refused, match=match) as raised:
        sim_github.run(settings, lambda _served: pytest.fail("it serves"))

    assert "canary" not in str(raised.value)
