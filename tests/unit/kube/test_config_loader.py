from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bramley.base import errors
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.config import ClientConfig
from bramley.kube.credentials import TokenFile


def written(path: Path, server: str, token: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "current-context": server,
        "clusters": [{"name": server, "cluster": {"server": f"https://{server}"}}],
        "contexts": [{"name": server, "context": {"cluster": server, "user": token and "me"}}],
        "users": [{"name": "me", "user": {"token": token}}] if token else [],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def pod(folder: Path) -> Path:
    folder.mkdir()
    (folder / "ca.crt").write_text("CA")
    (folder / "token").write_text("token")
    (folder / "namespace").write_text("runners\n")
    return folder


IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}


def test_an_explicit_file_wins_over_everything(tmp_path: Path) -> None:
    explicit = written(tmp_path / "explicit", "explicit")
    variable = written(tmp_path / "variable", "variable")

    found = config_loader.load(explicit, environment={"KUBECONFIG": str(variable), **IN_POD})

    assert found.server == "https://explicit"


def test_the_variable_may_list_files_and_skips_missing_ones(tmp_path: Path) -> None:
    one, two = written(tmp_path / "one", "one"), written(tmp_path / "two", "two")
    environment = {"KUBECONFIG": f"{tmp_path / 'none'}:{one}::{two}", **IN_POD}

    assert config_loader.load(environment=environment).server == "https://one"
    assert config_loader.load(context="two", environment=environment).server == "https://two"


def test_a_variable_that_names_only_missing_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(errors.BadConfiguration, match="none: cannot be read"):
        config_loader.load(environment={"KUBECONFIG": str(tmp_path / "none"), **IN_POD})


def test_a_pod_finds_its_own_cluster(tmp_path: Path) -> None:
    files = pod(tmp_path / "pod")

    found = config_loader.load(environment=IN_POD, pod_files=files)

    assert found.server == "https://10.0.0.1:6443"
    assert found.trust.authorities == "CA"
    assert found.namespace == "runners"
    assert isinstance(found.credentials, TokenFile)


def test_a_pod_on_ipv6_gets_brackets(tmp_path: Path) -> None:
    files = pod(tmp_path / "pod")

    found = config_loader.load(environment={"KUBERNETES_SERVICE_HOST": "fd00::1"}, pod_files=files)

    assert found.server == "https://[fd00::1]:443"


def test_pod_without_a_token_gets_a_helpful_error(tmp_path: Path) -> None:
    with pytest.raises(errors.BadConfiguration, match="give the Pod a ServiceAccount token"):
        config_loader.load(environment=IN_POD, pod_files=tmp_path)


def test_context_without_a_kubeconfig_is_refused_in_a_pod(tmp_path: Path) -> None:
    with pytest.raises(errors.BadConfiguration, match="give a kubeconfig too"):
        config_loader.load(context="x", environment=IN_POD, pod_files=pod(tmp_path / "pod"))


def test_home_folder_is_used_last(tmp_path: Path) -> None:
    written(tmp_path / ".kube" / "config", "home")

    assert config_loader.load(environment={"HOME": str(tmp_path)}).server == "https://home"
    with pytest.raises(errors.BadConfiguration, match="cannot be read"):
        config_loader.load(environment={"HOME": str(tmp_path / "missing")})


async def test_connect_sends_no_request(tmp_path: Path) -> None:
    client = config_loader.connect(written(tmp_path / "config", "one"), environment={})

    assert isinstance(client, Client)
    await client.close()


async def shown(found: ClientConfig) -> str:
    authorization = (await found.credentials.current()).authorization
    return authorization.reveal() if authorization else ""


async def test_token_that_is_replaced_in_a_kubeconfig_is_found_when_the_old_one_is_refused(
    tmp_path: Path,
) -> None:
    file = written(tmp_path / "config", "here", "old")
    found = config_loader.load(file, environment={})
    first = await found.credentials.current()

    assert not await found.credentials.refused(first)
    written(file, "here", "new")
    assert await shown(found) == "Bearer old"
    assert await found.credentials.refused(first)
    assert await shown(found) == "Bearer new"
    # Others that were refused with the old one meanwhile.
    assert await found.credentials.refused(first)


async def test_kubeconfig_that_is_just_being_written_or_names_another_server_changes_nothing(
    tmp_path: Path,
) -> None:
    file = written(tmp_path / "config", "here", "old")
    found = config_loader.load(file, environment={})
    first = await found.credentials.current()

    file.write_text("")
    assert not await found.credentials.refused(first)
    written(file, "elsewhere", "new")
    assert not await found.credentials.refused(first)
    assert await shown(found) == "Bearer old"
