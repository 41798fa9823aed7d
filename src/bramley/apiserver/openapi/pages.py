"""The pages below `/openapi`: the index and the documents, with what clients need to keep them.

The second version of OpenAPI is there in name only: clients ask for it when they find a group in no document of the third, and
take no document for a failure, but one without kinds for what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import NamedTuple

import msgspec

from bramley.apiserver.openapi.documents import Documents

ROOT = "/openapi/v3"
OLD = "/openapi/v2"
_JSON = "application/json"
_OLD_BINARY = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_TITLE = "Kubernetes"
_READ_AS = frozenset({"application/json", "application/*", "*/*", ""})
_KEPT = timedelta(days=365)


class Page(NamedTuple):
    """A page: its code, its headers and its body."""

    code: int
    headers: Mapping[str, str]
    body: bytes = b""


class Pages:
    """Serves the documents; `now` tells the time of day."""

    def __init__(self, documents: Documents, now: Callable[[], datetime]) -> None:
        self._documents = documents
        self._now = now

    def page(self, path: str, *, accept: str = "", hash: str = "", known: str = "") -> Page:
        """Return the page at a path; `hash` is the one in the address, `known` the tag of what the client has."""
        if path == OLD:
            return _old(accept, self._documents.version)
        if path == ROOT:
            return Page(200, {"content-type": _JSON}, self._documents.index())
        name = path.removeprefix(f"{ROOT}/")
        current = self._documents.find_hash(name)
        if current is None:
            return Page(404, {})
        if not any(_media(each) in _READ_AS for each in accept.split(",")):
            return Page(406, {"vary": "Accept"})
        headers = {"etag": f'"{current}"', "vary": "Accept"}
        if hash and hash != current:
            return Page(301, {**headers, "location": self._documents.address(name)})
        if hash:
            headers |= self._forever()
        if known == headers["etag"]:
            return Page(304, headers)
        return Page(200, {**headers, "content-type": _JSON}, self._documents.document(name))

    def _forever(self) -> Mapping[str, str]:
        expires = format_datetime(self._now() + _KEPT, usegmt=True)
        return {"cache-control": "public, immutable", "expires": expires}


def _old(accept: str, version: str) -> Page:
    """Return a document of the second version that describes nothing, in the form that the client likes best."""
    for clause in accept.split(","):
        # The name that clients ask by is none that they could read in an answer.
        if _media(clause).replace("@", ".") == _OLD_BINARY:
            return Page(200, {"content-type": _OLD_BINARY, "vary": "Accept"}, _old_binary(version))
        if _media(clause) in _READ_AS:
            info = {"title": _TITLE, "version": version}
            body = msgspec.json.encode({"swagger": "2.0", "info": info, "paths": {}})
            return Page(200, {"content-type": _JSON, "vary": "Accept"}, body)
    return Page(406, {"vary": "Accept"})


def _old_binary(version: str) -> bytes:
    info = _text_field(1, _TITLE) + _text_field(2, version)
    return _text_field(1, "2.0") + bytes([2 << 3 | 2, len(info)]) + info


def _text_field(number: int, text: str) -> bytes:
    return bytes([number << 3 | 2, len(text)]) + text.encode()


def _media(clause: str) -> str:
    return clause.partition(";")[0].strip().lower()
