from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.access.pod_references import References, of_spec

SECRET_IN_VOLUME = [
    {"secret": {"secretName": "x"}},
    {"azureFile": {"secretName": "x"}},
    {"cephfs": {"secretRef": {"name": "x"}}},
    {"cinder": {"secretRef": {"name": "x"}}},
    {"flexVolume": {"secretRef": {"name": "x"}}},
    {"iscsi": {"secretRef": {"name": "x"}}},
    {"rbd": {"secretRef": {"name": "x"}}},
    {"scaleIO": {"secretRef": {"name": "x"}}},
    {"storageos": {"secretRef": {"name": "x"}}},
    {"csi": {"nodePublishSecretRef": {"name": "x"}}},
    {"projected": {"sources": [{"secret": {"name": "x"}}]}},
]
CONTAINERS = ["containers", "initContainers", "ephemeralContainers"]


@pytest.mark.parametrize("volume", SECRET_IN_VOLUME, ids=lambda volume: next(iter(volume)))
def test_each_kind_of_volume_can_name_a_secret(volume: dict[str, Any]) -> None:
    found = of_spec({"volumes": [{"name": "v", **volume}]})

    assert found == References(secrets=frozenset({"x"}))


@pytest.mark.parametrize(
    "volume",
    [{"configMap": {"name": "x"}}, {"projected": {"sources": [{"configMap": {"name": "x"}}]}}],
)
def test_volumes_name_config_maps(volume: dict[str, Any]) -> None:
    found = of_spec({"volumes": [{"name": "v", **volume}]})

    assert found == References(config_maps=frozenset({"x"}))


@pytest.mark.parametrize("field", CONTAINERS)
def test_variables_of_every_sort_of_container_count(field: str) -> None:
    env = [
        {"name": "A", "value": "s-not"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s-env", "key": "k"}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c-env", "key": "k"}}},
        {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    sources = [{"secretRef": {"name": "s-all"}}, {"prefix": "P", "configMapRef": {"name": "c-all"}}]

    found = of_spec({field: [{"name": "vm", "env": env, "envFrom": sources}]})

    assert found.secrets == {"s-env", "s-all"}
    assert found.config_maps == {"c-env", "c-all"}


def test_image_pull_secrets_and_the_account_count() -> None:
    found = of_spec({"imagePullSecrets": [{"name": "pull"}, {}], "serviceAccountName": "robot"})

    assert found == References("robot", frozenset({"pull"}), frozenset())


@pytest.mark.parametrize("spec", [{}, {"serviceAccountName": ""}, {"serviceAccountName": None}])
def test_pod_that_names_no_account_runs_as_the_default_one(spec: dict[str, Any]) -> None:
    assert of_spec(spec).service_account == "default"


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "volumes",
                    "containers",
                    "env",
                    "envFrom",
                    "valueFrom",
                    "secretKeyRef",
                    "name",
                    "secret",
                    "projected",
                    "sources",
                    "imagePullSecrets",
                    "secretName",
                    "serviceAccountName",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


@given(
    st.dictionaries(
        st.sampled_from(["volumes", "containers", "imagePullSecrets", "serviceAccountName"]), _json
    )
)
def test_any_spec_is_read_and_names_are_strings(spec: dict[str, Any]) -> None:
    found = of_spec(spec)

    names: list[Any] = [*found.secrets, *found.config_maps, found.service_account]
    assert all(type(name) is str and name for name in names)
