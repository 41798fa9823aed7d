from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.kube import config_loader, kubeconfig
from bramley.kube.config import ClientConfig
from bramley.kube.credentials import Credential, StaticCredentials, TokenFile
from bramley.kube.exec_plugin import ExecPlugin
from tests.unit.kube.certificates import Authority


def written(
    folder: Path,
    *,
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    name: str = "config",
) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://one:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def access(*files: Path, context: str | None = None) -> ClientConfig:
    chosen = kubeconfig.read(files, context=context)
    return config_loader.config_of(chosen, clock=SystemClock(), environment={})


def credential(found: ClientConfig) -> Credential:
    assert isinstance(found.credentials, StaticCredentials)
    return found.credentials.credential


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_token_user(tmp_path: Path) -> None:
    found = access(written(tmp_path, user={"token": "hunter2"}))

    assert found.server == "https://one:6443"
    assert found.namespace == "n"
    assert found.compression
    authorization = credential(found).authorization
    assert authorization
    assert authorization.reveal() == "Bearer hunter2"
    assert "hunter2" not in repr(found)


def test_user_without_credentials_is_accepted(tmp_path: Path) -> None:
    assert credential(access(written(tmp_path))) == Credential()


def test_a_name_and_a_password(tmp_path: Path) -> None:
    found = access(written(tmp_path, user={"username": "me", "password": "hunter2"}))

    authorization = credential(found).authorization
    assert authorization
    assert authorization.reveal() == f"Basic {base64_of('me:hunter2')}"


def test_certificates_as_files_are_found_from_the_files_folder(tmp_path: Path) -> None:
    for name in ("ca.crt", "me.crt", "me.key"):
        (tmp_path / name).write_text(f"PEM of {name}")
    file = written(
        tmp_path,
        cluster={"certificate-authority": "ca.crt", "tls-server-name": "kubernetes"},
        user={"client-certificate": "me.crt", "client-key": str(tmp_path / "me.key")},
    )

    found = access(file)

    assert found.trust.authorities == "PEM of ca.crt"
    assert found.trust.server_name == "kubernetes"
    certificate = credential(found).certificate
    assert certificate
    assert certificate.certificate == "PEM of me.crt"
    assert certificate.key.reveal() == "PEM of me.key"


def test_certificates_as_data_win_over_files(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        cluster={"certificate-authority": "no", "certificate-authority-data": base64_of("CA")},
        user={
            "client-certificate": "no",
            "client-certificate-data": base64_of("CERT"),
            "client-key-data": base64_of("hunter2"),
        },
    )

    found = access(file)

    assert found.trust.authorities == "CA"
    certificate = credential(found).certificate
    assert certificate
    assert (certificate.certificate, certificate.key.reveal()) == ("CERT", "hunter2")
    assert "hunter2" not in repr(kubeconfig.read([file]))
    assert base64_of("hunter2") not in repr(kubeconfig.read([file]))


def test_a_token_file_wins_over_a_token(tmp_path: Path) -> None:
    found = access(written(tmp_path, user={"token": "old", "tokenFile": "token"}))

    assert isinstance(found.credentials, TokenFile)


def test_the_other_fields_of_a_cluster(tmp_path: Path) -> None:
    cluster = {
        "insecure-skip-tls-verify": True,
        "proxy-url": "http://proxy:3128",
        "disable-compression": True,
        "extensions": [{"name": "minikube", "extension": {"any": "thing"}}],
    }

    found = access(written(tmp_path, cluster=cluster))

    assert not found.trust.verify
    assert found.proxy == "http://proxy:3128"
    assert not found.compression


def test_impersonation_headers(tmp_path: Path) -> None:
    user = {
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"scopes/x": ["view"]},
    }

    assert access(written(tmp_path, user=user)).headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-scopes%2Fx", "view"),
    )


def plugin_of(tmp_path: Path, **more: Any) -> ExecPlugin:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "bin/plugin",
        "args": ["get"],
        "env": [{"name": "PASSWORD", "value": "hunter2"}],
        "provideClusterInfo": True,
        "interactiveMode": "IfAvailable",
        **more,
    }
    cluster = {
        "certificate-authority-data": base64_of("CA"),
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"a": 1}}],
    }
    found = access(written(tmp_path, cluster=cluster, user={"exec": plugin}))
    assert isinstance(found.credentials, ExecPlugin)
    return found.credentials


def test_an_exec_plugin(tmp_path: Path) -> None:
    plugin = plugin_of(tmp_path)._plugin

    assert plugin.command == str(tmp_path / "bin/plugin")
    assert plugin.arguments == ("get",)
    assert plugin.environment["PASSWORD"].reveal() == "hunter2"
    assert plugin.cluster == {
        "server": "https://one:6443",
        "certificate-authority-data": base64_of("CA"),
        "config": {"a": 1},
    }
    assert "hunter2" not in repr(plugin)


def test_a_bare_command_is_looked_up_on_the_path(tmp_path: Path) -> None:
    plugin = plugin_of(tmp_path, command="aws", provideClusterInfo=False)._plugin

    assert plugin.command == "aws"
    assert plugin.cluster is None


def test_the_first_file_that_names_something_wins(tmp_path: Path) -> None:
    first = written(tmp_path / "a", user={"token": "first"})
    second = written(tmp_path / "b", cluster={"server": "https://two"}, user={"token": "second"})
    third = tmp_path / "third"
    context = {"name": "there", "context": {"cluster": "other", "user": "u"}}
    cluster = {
        "name": "other",
        "cluster": {"server": "https://three", "certificate-authority": "x"},
    }
    third.write_text(
        yaml.safe_dump({"contexts": [context], "clusters": [cluster], "current-context": "there"})
    )
    (tmp_path / "x").write_text("CA of three")

    here = access(first, second, third)
    there = access(first, second, third, context="there")

    assert here.server == "https://one:6443"
    assert there.server == "https://three"
    assert there.namespace == "default"
    assert there.trust.authorities == "CA of three"
    assert credential(there) == credential(here)


def test_empty_file_is_reported_with_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("")

    with pytest.raises(errors.BadConfiguration, match="current-context: is not set"):
        access(file)


def test_error_for_a_missing_context_lists_the_others(tmp_path: Path) -> None:
    file = written(tmp_path)

    with pytest.raises(errors.BadConfiguration) as caught:
        access(file, context="nowhere")

    assert str(caught.value) == f"{file}: contexts: 'nowhere' does not exist; choose one of 'here'"


@pytest.mark.parametrize("what", ["cluster", "user"])
def test_context_with_unknown_references_is_reported(tmp_path: Path, what: str) -> None:
    file = written(tmp_path)
    content = yaml.safe_load(file.read_text())
    content["contexts"][0]["context"][what] = "missing"
    file.write_text(yaml.safe_dump(content))

    with pytest.raises(errors.BadConfiguration) as caught:
        access(file)

    assert f"{file}: contexts[\"here\"].context.{what}: 'missing' does not exist" in str(
        caught.value
    )


BAD_CLUSTERS: list[tuple[dict[str, Any], str]] = [
    ({"server": ""}, "cluster.server: is not a URL; write it as https://host:port"),
    ({"server": "one:6443"}, "cluster.server: is not a URL"),
    ({"server": "https://one:port"}, "cluster.server: is not a URL"),
    ({"server": "ftp://one"}, "cluster.server: is not a URL"),
    ({"server": "https://me:hunter2@one"}, "cluster.server: contains a user name or password"),
    ({"server": "https://one?token=hunter2"}, "cluster.server: contains a query"),
    ({"server": ["hunter2"]}, "clusters[0].cluster.server: Expected `str`, got `array`"),
    ({"proxy-url": "socks5://proxy"}, "cluster.proxy-url: is not a URL"),
    ({"certificate-authority": "nofile"}, "cluster.certificate-authority: "),
    ({"certificate-authority-data": "hunter2!"}, "clusters[0].cluster.certificate-authority-data"),
    ({"certificate-authority-data": "/////w=="}, "certificate-authority-data: is not PEM"),
    (
        {"insecure-skip-tls-verify": True, "certificate-authority-data": base64_of("CA")},
        "cluster.insecure-skip-tls-verify: contradicts",
    ),
    ({"insecure-skip-tls-verify": "hunter2"}, "cluster.insecure-skip-tls-verify"),
]


@pytest.mark.parametrize(("cluster", "problem"), BAD_CLUSTERS)
def test_invalid_cluster_is_reported(tmp_path: Path, cluster: dict[str, Any], problem: str) -> None:
    file = written(tmp_path, cluster=cluster)

    with pytest.raises(errors.BadConfiguration) as caught:
        access(file)

    assert str(caught.value).startswith(f"{file}: ")
    assert problem in str(caught.value)
    assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r}"


def plugin(**more: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", **more}}


BAD_USERS: list[tuple[dict[str, Any], str]] = [
    ({"token": "two words hunter2"}, "user.token: does not contain a valid token"),
    ({"token": 12345}, "users[0].user.token: Expected `str`"),
    ({"client-certificate": "nofile", "client-key": "x"}, "user.client-certificate: "),
    ({"client-certificate-data": base64_of("x")}, "user.client-key: is missing"),
    ({"client-key-data": base64_of("hunter2")}, "user.client-certificate: is missing"),
    ({"client-key-data": "hunter2!"}, "user.client-key-data: is not base64"),
    ({"auth-provider": {"config": {"token": "hunter2"}}}, "user.auth-provider: Kubernetes removed"),
    ({"as": "jane", "as-groups": ["a\r\nX-Evil: b"]}, "user.as: a name, uid, group or extra"),
    (plugin(apiVersion="client.authentication.k8s.io/v1alpha1"), "exec.apiVersion: is 'client."),
    (plugin(command=""), "user.exec.command: is missing"),
    (plugin(interactiveMode="Always"), "user.exec.interactiveMode: is Always"),
    (plugin(env=[{"name": "A", "value": ["hunter2"]}]), "users[0].user.exec.env[0].value"),
]


@pytest.mark.parametrize(("user", "problem"), BAD_USERS)
def test_invalid_user_is_reported(tmp_path: Path, user: dict[str, Any], problem: str) -> None:
    file = written(tmp_path, user=user)

    with pytest.raises(errors.BadConfiguration) as caught:
        access(file)

    assert str(caught.value).startswith(f"{file}: ")
    assert problem in str(caught.value)
    assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r}"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"users:\ntoken: hunter2: [", "is not valid YAML in line 2"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"- hunter2", "the whole file: Expected `object`"),
        (b"clusters: hunter2", "clusters: Expected `array | null`"),
    ],
)
def test_invalid_file_is_reported(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "config"
    file.write_bytes(content)

    with pytest.raises(errors.BadConfiguration) as caught:
        access(file)

    assert str(caught.value).startswith(f"{file}: {problem}")
    assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.BadConfiguration, match="No such file"):
        access(tmp_path / "config")


def test_mismatched_certificate_and_key_are_refused_without_being_shown(tmp_path: Path) -> None:
    from bramley.kube import tls

    authority = Authority.make()
    pair, other = authority.client("me"), authority.client("other")
    user = {
        "client-certificate-data": base64_of(pair.certificate),
        "client-key-data": base64_of(other.key),
    }
    certificate = credential(access(written(tmp_path, user=user))).certificate

    with pytest.raises(errors.BadConfiguration, match="do not work together") as caught:
        tls.context(tls.Trust(), certificate)

    assert 'users["u"].user.client-certificate' in str(caught.value)
    assert other.key[40:80] not in repr(caught.value)


def test_invalid_authority_is_reported(tmp_path: Path) -> None:
    from bramley.kube import tls

    file = written(tmp_path, cluster={"certificate-authority-data": base64_of("no PEM")})

    with pytest.raises(errors.BadConfiguration, match="no valid certificate authority"):
        tls.context(access(file).trust)


def test_no_key_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bramley.base.secret import Secret
    from bramley.kube import tls

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pair = Authority.make().client("me")

    tls.context(tls.Trust(), tls.ClientCertificate(pair.certificate, Secret(pair.key)))

    assert list(tmp_path.iterdir()) == []
