"""A program on the official Python client: makes the objects, follows them by its watch, and lists them at the end.

`python official_client.py KUBECONFIG OBJECTS` prints a line for each stage and one line of JSON at the end. It is run by the
interpreter that has the client, and uses nothing but what the client offers: typed and custom APIs, Watch, its errors.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import urllib3
from kubernetes import client, config, watch

GROUP, VERSION, PLURAL = "example.com", "v1", "apples"
NAMESPACE = "orchard"
TIMEOUT_SECONDS = 600
CUT = (urllib3.exceptions.HTTPError, OSError)


def main(kubeconfig: str, count: str) -> None:
    """Run all stages and print the report."""
    config.load_kube_config(kubeconfig)
    names = [f"apple-{number:04}" for number in range(int(count))]
    define()
    seen: dict[str, int] = {}
    done = threading.Event()
    follower = threading.Thread(target=follow, args=(names, seen, done), daemon=True)
    follower.start()
    for number, name in enumerate(names):
        keep_trying(partial(create, name))
        if number % 100 == 0:
            print_line(f"created {number}")
    print_line("created all")
    finished = done.wait(TIMEOUT_SECONDS)
    listed = keep_trying(listing)
    label_all(names[:20])
    report = {
        "watched_all": finished,
        "not_watched": sorted(set(names) - set(seen)),
        "pressed": sum(1 for each in listed if each.get("status", {}).get("pressed")),
        "listed": len(listed),
        "juices": len(keep_trying(juices)),
    }
    print_line(json.dumps(report))


def define() -> None:
    """Make the namespace and the kind."""
    core, extensions = client.CoreV1Api(), client.ApiextensionsV1Api()
    core.create_namespace({"metadata": {"name": NAMESPACE}})
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    extensions.create_custom_resource_definition(
        {
            "metadata": {"name": f"{PLURAL}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {"plural": PLURAL, "singular": "apple", "kind": "Apple"},
                "versions": [
                    {
                        "name": VERSION,
                        "served": True,
                        "storage": True,
                        "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": schema},
                    }
                ],
            },
        }
    )
    print_line("defined")


def create(name: str) -> None:
    """Create one object; if it exists already, only the response of an earlier attempt was lost."""
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Apple",
        "metadata": {"name": name},
        "spec": {"sort": "Bramley"},
    }
    try:
        custom().create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, body)
    except client.ApiException as error:
        if error.status != 409:
            raise


def follow(names: list[str], seen: dict[str, int], done: threading.Event) -> None:
    """Watch until every object was observed as pressed, with a new watch after each failure of the server."""
    expected = set(names)
    while not done.is_set():
        try:
            follow_once(expected, seen)
        except CUT:
            time.sleep(0.1)
        except client.ApiException as error:
            if error.status not in {410, 500, 503}:
                raise
        if not expected - set(seen):
            done.set()


def follow_once(expected: set[str], seen: dict[str, int]) -> None:
    """Follow one watch to its end, or until all objects were observed."""
    watcher = watch.Watch()
    calls = custom().list_namespaced_custom_object
    for event in watcher.stream(calls, GROUP, VERSION, NAMESPACE, PLURAL, timeout_seconds=20):
        obj = event["object"]
        if obj.get("status", {}).get("pressed"):
            seen[obj["metadata"]["name"]] = int(obj["metadata"]["resourceVersion"])
        if not expected - set(seen):
            watcher.stop()


def label_all(names: list[str]) -> None:
    """Change some of them."""
    body = {"metadata": {"labels": {"picked": "yes"}}}
    patch = partial(custom().patch_namespaced_custom_object, GROUP, VERSION, NAMESPACE, PLURAL)
    for name in names:
        keep_trying(partial(patch, name, body))


def listing() -> list[Any]:
    """Return all objects, page by page."""
    found, token = [], None
    while True:
        page = custom().list_namespaced_custom_object(
            GROUP, VERSION, NAMESPACE, PLURAL, limit=137, _continue=token
        )
        found += page["items"]
        token = page["metadata"].get("continue")
        if not token:
            return found


def juices() -> list[Any]:
    """Return what the operator made."""
    core = client.CoreV1Api()
    items: list[Any] = core.list_namespaced_config_map(
        NAMESPACE, label_selector="made-by=press"
    ).items
    return items


def custom() -> Any:
    """Return the API of custom objects."""
    return client.CustomObjectsApi()


def keep_trying(call: Callable[[], Any]) -> Any:
    """Repeat the call while the server is unreachable; other errors are raised."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return call()
        except CUT:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def print_line(line: str) -> None:
    """Print a line for the parent process."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
