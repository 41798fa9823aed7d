from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
import yaml

from bramley.apiserver.admin import kubeconfigs
from bramley.apiserver.auth.bearer_tokens import ADMIN, ADMIN_GROUPS, Tokens
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret

SERVER = "https://127.0.0.1:6443"
TOKEN = "t0ken"


def written(path: Path, token: str = TOKEN) -> dict[str, object]:
    kubeconfigs.write(path, server=SERVER, authority=b"PEM", token=Secret(token))
    document: dict[str, object] = yaml.safe_load(path.read_text())
    return document


def test_kubeconfig_holds_address_authority_and_token(tmp_path: Path) -> None:
    document = written(tmp_path / "kubeconfig")

    cluster = {"server": SERVER, "certificate-authority-data": base64.b64encode(b"PEM").decode()}
    assert [{"name": "bramley", "cluster": cluster}] == document["clusters"]
    assert document["users"] == [{"name": "admin", "user": {"token": TOKEN}}]
    assert document["current-context"] == "bramley"


def test_kubeconfig_is_private_even_if_it_was_not_before(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kubeconfig"
    written(path)
    path.chmod(0o644)

    written(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [path] == list(path.parent.iterdir())


def test_working_token_is_kept(tmp_path: Path) -> None:
    tokens = Tokens.open(tmp_path)
    token = tokens.issue(ADMIN, ADMIN_GROUPS)
    written(tmp_path / "kubeconfig", token.reveal())

    assert token == kubeconfigs.admin_token(tmp_path / "kubeconfig", tokens)


def test_lost_kubeconfig_gets_a_new_token_and_the_old_one_is_invalid(tmp_path: Path) -> None:
    tokens = Tokens.open(tmp_path)
    old = tokens.issue(ADMIN, ADMIN_GROUPS)

    new = kubeconfigs.admin_token(tmp_path / "kubeconfig", tokens)

    user = tokens.identify(new.reveal())
    assert user is not None
    assert "system:masters" in user.groups
    assert tokens.identify(old.reveal()) is None


def test_token_of_another_user_is_replaced(tmp_path: Path) -> None:
    tokens = Tokens.open(tmp_path)
    token = tokens.issue("ada")
    written(tmp_path / "kubeconfig", token.reveal())

    assert token != kubeconfigs.admin_token(tmp_path / "kubeconfig", tokens)


@pytest.mark.parametrize(
    "content",
    [
        "clusters: [{name: prod, cluster: {}}]",
        "clusters: [{name: bramley}, {name: prod}]",
        "not: a kubeconfig",
        "[",
        "just text",
    ],
)
def test_file_that_is_not_ours_is_left_alone(content: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(content)

    with pytest.raises(BadConfiguration, match="was not written by Bramley"):
        kubeconfigs.refuse_foreign(path)


def test_own_empty_or_missing_file_is_accepted(tmp_path: Path) -> None:
    written(tmp_path / "ours")
    (tmp_path / "empty").touch()

    for name in ("ours", "empty", "none"):
        kubeconfigs.refuse_foreign(tmp_path / name)


def test_unwritable_path_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(BadConfiguration, match="cannot be"):
        written(tmp_path / "file" / "kubeconfig")
