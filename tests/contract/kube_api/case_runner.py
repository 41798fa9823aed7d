"""Runs a case on a server over any transport and returns its answers without ids, times and versions."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from bramley.kube.transport import Request, Response, Transport
from tests.contract.kube_api.tables import COLLECTIONS, Case, Json, Step

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_JWT = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_CURRENT = re.compile(
    r"(current: |ResourceVersion in record \(|too old resource version: \d+ \()\d+"
)
_GENERATED = re.compile(r"\b((?:generated|Generated)-)[bcdfghjklmnpqrstvwxz2456789]{5}\b")
_PATCHED = re.compile(r'(?:patch: )?Invalid value: "\{.*\}"')
_AGE = re.compile(r"(?:\d+[smhdy])+")
_SUMMARY_KEYS = {"uid": "<uid>", "continue": "<token>"}
_DEADLINE = timedelta(seconds=180)
# A real server caches for ten seconds that a token was valid.
_WAIT = timedelta(seconds=180)
_PAUSE = 0.05
# How long a watch must last after the changes that it should show.
_MARGIN = 2.0


class TooLate(Exception):
    """The machine was too busy for a watch with a time limit, so its events are not comparable."""


async def run_case(transport: Transport, case: Case, namespace: str) -> list[Json]:
    """Send the case's requests in order, in a namespace that exists, and return the answers."""
    memory: dict[str, str] = {}
    answers = []
    for step in case.steps:
        if step.until is None:
            answers.append(await _answer(transport, step, namespace, memory))
        else:
            expected = json.loads(_filled(json.dumps(step.until), namespace, memory))
            await _wait(transport, _request(step, namespace, memory), expected, case)
    return answers


async def _wait(transport: Transport, request: Request, expected: Json, case: Case) -> None:
    body: Any = None
    try:
        async with asyncio.timeout(_WAIT.total_seconds()):
            while not _has(body, expected):
                await asyncio.sleep(_PAUSE if body else 0)
                body = json.loads((await transport.send(request)).body)
    except TimeoutError as error:
        error.add_note(f"{case.id}: has never become {expected}, but is {body}")
        raise


def _has(value: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return isinstance(value, dict) and all(
            _has(value.get(key), each) for key, each in expected.items()
        )
    return bool(value == expected)


async def _answer(transport: Transport, step: Step, namespace: str, memory: dict[str, str]) -> Json:
    request = _request(step, namespace, memory)
    if request.method == "WATCH":
        return await _watched(transport, step, namespace, memory)
    response = await transport.send(request)
    _remember(response, memory)
    answers = _answer_of(response, namespace)
    return {**answers, "managers": _managers(response)} if step.managers else answers


async def _watched(
    transport: Transport, step: Step, namespace: str, memory: dict[str, str]
) -> Json:
    """Open a watch, send the requests of `during`, and read the watch to its end."""
    listing = _request(step, namespace, memory)
    request = Request("GET", listing.path, listing.query, accept=listing.accept, deadline=_DEADLINE)
    now = asyncio.get_running_loop().time
    began = now()
    async with transport.stream(request) as stream:
        opened = now() - began
        if stream.status != 200:
            body = b"".join([chunk async for chunk in stream.chunks])
            return _answer_of(Response(stream.status, stream.headers, body), namespace)
        chunks: list[bytes] = []

        async def read() -> None:
            chunks.extend([chunk async for chunk in stream.chunks])

        async with asyncio.TaskGroup() as group:
            group.create_task(read())
            for each in step.during:
                await _answer(transport, each, namespace, memory)
            done = now() - began
    lasts = float(listing.query["timeoutSeconds"])
    if opened > lasts / 2 or (step.during and done > lasts - _MARGIN):
        raise TooLate(f"{step.do}: open after {opened:.1f} s, and all was done after {done:.1f} s")
    lines = b"".join(chunks).splitlines()
    events = [_event(json.loads(line), namespace) for line in lines]
    return {"code": 200, "events": [each for each in events if each]}


def _event(event: Json, namespace: str) -> Json:
    # Plain bookmarks come at any time; only those that end the initial events are part of the contract.
    meta = event["object"].get("metadata", {})
    if event["type"] == "BOOKMARK":
        return (
            {"type": "BOOKMARK", "annotations": meta["annotations"]}
            if "annotations" in meta
            else {}
        )
    return {"type": event["type"], "object": _plain(event["object"], namespace)}


def _request(step: Step, namespace: str, memory: Mapping[str, str]) -> Request:
    method, target = _filled(step.do, namespace, memory).split(" ", 1)
    path, _, query = target.partition("?")
    body = None
    if step.hex is not None:
        body = bytes.fromhex(step.hex)
    elif step.raw is not None:
        body = _expanded(_filled(step.raw, namespace, memory)).encode()
    elif step.send is not None:
        body = _expanded(_filled(json.dumps(step.send), namespace, memory)).encode()
    parameters = dict(each.partition("=")[::2] for each in query.split("&") if each)
    return Request(
        method,
        path,
        {key: _unquoted(value) for key, value in parameters.items()},
        body=body,
        content_type=step.content_type,
        accept=step.accept,
        deadline=_DEADLINE,
        headers=tuple((key, _filled(value, namespace, memory)) for key, value in step.headers),
    )


def _filled(text: str, namespace: str, memory: Mapping[str, str]) -> str:
    for name, path in COLLECTIONS.items():
        text = text.replace(f"{{{name}}}", path)
    for name, value in memory.items():
        text = text.replace(f"<{name}>", value)
    return text.replace("{ns}", namespace)


def _expanded(text: str) -> str:
    # `@x*300@` stands for 300 times x, so that a case about sizes stays readable.
    return re.sub(r"@(.)\*(\d+)@", lambda match: match.group(1) * int(match.group(2)), text)


def _unquoted(text: str) -> str:
    return text.replace("%20", " ").replace("%2B", "+").replace("%26", "&")


def _remember(response: Response, memory: dict[str, str]) -> None:
    """Keep the id, version and token of the last answer, for steps that refer to them."""
    try:
        body = json.loads(response.body)
        meta = body.get("metadata", {})
    except (ValueError, AttributeError):
        return
    if body.get("kind") == "TokenRequest":
        memory["minted"] = body["status"]["token"]
    known = {"uid": "uid", "rv": "resourceVersion", "token": "continue"}
    memory |= {name: meta[key] for name, key in known.items() if meta.get(key)}


def _managers(response: Response) -> list[Json]:
    """Return who manages which fields of the object in an answer, free of times."""
    entries = json.loads(response.body).get("metadata", {}).get("managedFields", [])
    bare = [{key: each[key] for key in sorted(each) if key != "time"} for each in entries]
    return sorted(bare, key=lambda each: json.dumps(each, sort_keys=True))


def _answer_of(response: Response, namespace: str) -> Json:
    answers: Json = {"code": response.status}
    if response.headers.get("warning"):
        answers["warned"] = True
    try:
        body: Any = json.loads(response.body)
    except ValueError:
        return {**answers, "text": response.body.decode(errors="replace")[:200]}
    return {**answers, "body": _plain(body, namespace)}


def _plain(value: Any, namespace: str) -> Any:
    """Return a value without what differs from run to run and from server to server."""
    if isinstance(value, dict):
        return _plain_object(value, namespace)
    if isinstance(value, list):
        return [_plain(each, namespace) for each in value]
    if isinstance(value, str):
        return _plain_text(value, namespace)
    return value


def _plain_object(value: Json, namespace: str) -> Json:
    plain: Json = {}
    for key, each in value.items():
        if key in {"managedFields", "selfLink", "storageVersionHash"}:
            continue
        if key == "resourceVersion" and isinstance(each, str):
            plain[key] = "<rv>" if each.isdigit() else each
        elif key in _SUMMARY_KEYS and isinstance(each, str):
            if each:
                plain[key] = _SUMMARY_KEYS[key]
        else:
            plain[key] = _plain(_ageless(each) if key == "cells" else each, namespace)
    if isinstance(plain.get("causes"), list):
        # A real server may repeat a cause, in no fixed order.
        unique = {json.dumps(each, sort_keys=True): each for each in plain["causes"]}
        plain["causes"] = [unique[key] for key in sorted(unique)]
    causes = (plain.get("details") or {}).get("causes", []) if "reason" in plain else []
    if len(causes) > 1:
        # The message repeats the causes in the order in which they were found, which may be that of a Go map.
        plain["message"] = plain["message"].partition(": ")[0]
    return plain


def _ageless(cells: list[Any]) -> list[Any]:
    return ["<age>" if isinstance(each, str) and _AGE.fullmatch(each) else each for each in cells]


def _plain_text(text: str, namespace: str) -> str:
    text = _JWT.sub("<signed token>", text)
    text = _UUID.sub("<uid>", text.replace(namespace, "{ns}"))
    text = _TIME.sub("<time>", text)
    text = _GENERATED.sub(r"\1<5>", text)
    text = _PATCHED.sub('Invalid value: "<patched>"', text)
    return _CURRENT.sub(r"\1<rv>", text)
