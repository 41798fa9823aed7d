"""Sends definitions and objects to a real kube-apiserver, without our own client, and returns its verdicts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
# Gets a method, a path and a body; returns the status code and the answer.
Call = Callable[[str, str, Json | None], tuple[int, Json]]

GROUP = "recorded.example.com"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(schema: Json, *, plural: str = "things") -> Json:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "kind": plural[:-1].capitalize()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def an_object(spec: Any, *, plural: str = "things") -> Json:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": plural[:-1].capitalize(),
        "metadata": {"name": "one"},
        "spec": spec,
    }


def causes(status: Json) -> list[list[str]]:
    listed = status.get("details", {}).get("causes", [])
    return sorted([one["field"], one["reason"], one["message"]] for one in listed)


def judge_definition(call: Call, schema: Json) -> list[list[str]]:
    code, answer = call("POST", f"{DEFINITIONS}?dryRun=All", definition(schema, plural="judgeds"))
    assert code in {201, 422}, answer
    return causes(answer)


def install(call: Call, schema: Json, plural: str) -> None:
    code, answer = call("POST", DEFINITIONS, definition(schema, plural=plural))
    assert code == 201, answer
    objects = f"/apis/{GROUP}/v1/namespaces/default/{plural}"
    _until(lambda: call("GET", objects, None)[0] == 200)


def tighten(call: Call, schema: Json, plural: str, probe: Json) -> None:
    """Replace the schema, and wait until a new object that breaks the tighter one is refused."""
    _until(lambda: _replaced(call, schema, plural))
    fresh = {**an_object(probe, plural=plural), "metadata": {"name": "probe"}}
    _until(lambda: _post(call, fresh, plural)[0] == 422)


def _replaced(call: Call, schema: Json, plural: str) -> bool:
    _, current = call("GET", f"{DEFINITIONS}/{plural}.{GROUP}", None)
    current["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    code, answer = call("PUT", f"{DEFINITIONS}/{plural}.{GROUP}", current)
    # The server itself writes the status of a definition.
    assert code in {200, 409}, answer
    return code == 200


def judge_object(call: Call, spec: Any, plural: str) -> Json:
    """Return what becomes of a new object: its spec after defaulting and pruning, or the causes of the refusal."""
    code, answer = _post(call, an_object(spec, plural=plural), plural)
    assert code in {201, 422}, answer
    return {"becomes": answer.get("spec")} if code == 201 else {"causes": causes(answer)}


def create(call: Call, spec: Any, plural: str) -> None:
    objects = f"/apis/{GROUP}/v1/namespaces/default/{plural}"
    code, answer = call("POST", objects, an_object(spec, plural=plural))
    assert code == 201, answer


def judge_change(call: Call, after: Any, plural: str) -> Json:
    """Return what becomes of the object that is there when it is changed."""
    objects = f"/apis/{GROUP}/v1/namespaces/default/{plural}"
    _, old = call("GET", f"{objects}/one", None)
    code, answer = call("PUT", f"{objects}/one?dryRun=All", {**old, "spec": after})
    return {"becomes": answer.get("spec")} if code == 200 else {"causes": causes(answer)}


def remove_object(call: Call, plural: str) -> None:
    call("DELETE", f"/apis/{GROUP}/v1/namespaces/default/{plural}/one", None)


def remove(call: Call, plural: str) -> None:
    call("DELETE", f"{DEFINITIONS}/{plural}.{GROUP}", None)
    _until(lambda: call("GET", f"{DEFINITIONS}/{plural}.{GROUP}", None)[0] == 404)


def _post(call: Call, body: Json, plural: str) -> tuple[int, Json]:
    path = f"/apis/{GROUP}/v1/namespaces/default/{plural}?dryRun=All&fieldValidation=Ignore"
    return call("POST", path, body)


def _until(condition: Callable[[], bool], *, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.1)


def plain(value: Any) -> Any:
    """Return a value as JSON has it: 1.0 and 1 are one number."""
    return json.loads(json.dumps(value))
