from __future__ import annotations

from typing import Any

import pytest

from bramley.agent.ledger import ImageRecord
from bramley.agent.node import status
from bramley.agent.settings import NodeSettings
from bramley.api.core import Node, NodeSpec, Taint
from bramley.api.meta import ObjectMeta
from bramley.api.names import labels as names

SETTINGS = NodeSettings("mac-1", provider_id="scw-applesilicon://par/1", labels={names.FLEET: "a"})
IMAGE = "ghcr.io/tuist/tuist-runner@sha256:" + 64 * "a"
GOLDEN = ImageRecord(digest="sha256:1", references=(IMAGE, "ghcr.io/x:1"), golden="g")


def a_node(provider_id: str = "", taints: list[Taint] | None = None, **more: str) -> Node:
    desired = status.desired_labels(SETTINGS, [])
    return Node(
        metadata=ObjectMeta(name="mac-1", labels={**desired, **more}),
        spec=NodeSpec(
            provider_id=provider_id or SETTINGS.provider_id,
            taints=[status.TAINT] if taints is None else taints,
        ),
    )


def patch(node: Node) -> dict[str, Any]:
    return status.metadata_patch(node, SETTINGS, [])


def test_converged_node_is_not_patched() -> None:
    assert patch(a_node()) == {}


def test_missing_provider_id_is_set() -> None:
    node = Node(
        metadata=ObjectMeta(labels=status.desired_labels(SETTINGS, [])),
        spec=NodeSpec(taints=[status.TAINT]),
    )

    assert patch(node) == {"spec": {"providerID": SETTINGS.provider_id}}


def test_provider_id_is_never_overwritten() -> None:
    assert patch(a_node(provider_id="scw-applesilicon://par/other")) == {}


def test_without_a_provider_id_the_field_is_unchanged() -> None:
    node = a_node()

    assert status.metadata_patch(node, NodeSettings("mac-1", labels=SETTINGS.labels), []) == {}


def test_own_labels_that_are_no_longer_desired_are_removed() -> None:
    stale = {"tuist.dev/old": "1", names.golden("gone"): "true"}
    node = Node(
        metadata=ObjectMeta(labels={**a_node().metadata.labels, **stale}), spec=a_node().spec
    )

    assert patch(node) == {"metadata": {"labels": dict.fromkeys(stale)}}


def test_foreign_labels_are_kept() -> None:
    node = Node(
        metadata=ObjectMeta(labels={**a_node().metadata.labels, "example.com/x": "1"}),
        spec=a_node().spec,
    )

    assert patch(node) == {}


def test_flag_cannot_override_the_agents_own_labels() -> None:
    settings = NodeSettings("mac-1", labels={names.OS: "linux", names.RUNTIME: "none"})

    desired = status.desired_labels(settings, [])

    assert (desired[names.OS], desired[names.RUNTIME]) == ("darwin", "tart")


def test_every_own_label_is_known_as_the_agents() -> None:
    own = status.desired_labels(NodeSettings("mac-1"), [GOLDEN])

    assert len(own) == 6
    assert all(names.is_set_by_agent(key) for key in own)
    assert not names.is_set_by_agent(names.FLEET)


def test_every_reference_of_a_golden_base_has_its_label() -> None:
    assert status.golden_labels([GOLDEN]) == {
        "tuist.dev/golden-9c8af651fdf30b10": "true",
        names.golden("ghcr.io/x:1"): "true",
    }


def test_image_without_a_golden_base_has_no_label() -> None:
    assert status.golden_labels([ImageRecord(digest="sha256:1", references=("x",))]) == {}


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_existing_taint_of_the_same_key_is_kept(effect: str) -> None:
    assert patch(a_node(taints=[Taint(key=names.MACOS_TAINT, effect=effect)])) == {}


def test_taint_is_added_to_the_foreign_ones() -> None:
    other = Taint(key="example.com/cordon", effect="NoSchedule")

    added = patch(a_node(taints=[other]))["spec"]["taints"]

    assert [taint["key"] for taint in added] == ["example.com/cordon", "tuist.dev/macos"]
