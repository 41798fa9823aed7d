"""The JSON paths of columns, beside those that the recorded tables have."""

from __future__ import annotations

from typing import Any

import pytest

from bramley.apiserver.tables import jsonpath

VALUE = {
    "a": {"b": [1, 2, 3], "with.dot": "x", "n": None},
    "list": [{"t": "p", "v": 1}, {"t": "q", "v": 2.5, "w": True}],
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b[0]", [1]),
        (".a.b[-1]", [3]),
        (".a.b[5]", []),
        (".a.b[-4]", []),
        (".a.b[1:9]", []),
        (".a.b[2:1]", []),
        (".a.b[1:1]", []),
        (".a.b[-2:]", [2, 3]),
        (".a.b[0:3:0]", []),
        (".a.b[1:]", [2, 3]),
        (".a.b[:2]", [1, 2]),
        (".a.b[::2]", [1, 3]),
        (".a.b[0,2]", [1, 3]),
        (".a.b[*]", [1, 2, 3]),
        ("$.a.b[0]", [1]),
        (".a['b'][0]", [1]),
        (r".a.with\.dot", ["x"]),
        (".a.none.deeper", []),
        (".a.n", [None]),
        (".a.n.deeper", []),
        (".list[*].t", ["p", "q"]),
        (".list[?(@.t=='q')].v", [2.5]),
        ('.list[?(@.t == "q")].v', [2.5]),
        (".list[?(@.t!='q')].v", [1]),
        (".list[?(@.v>=2)].t", ["q"]),
        (".list[?(@.v<2.5)].t", ["p"]),
        (".list[?(@.w)].t", ["q"]),
        (".list[?(@.w==true)].t", ["q"]),
        (".list[?(@.none=='q')].v", []),
        (".list[?(@.t>1)].v", []),
        (".a[?(@.t=='q')]", []),
        (".a[0]", []),
        ("..v", [1, 2.5]),
        (".", [VALUE]),
    ],
)
def test_path_finds_values(path: str, found: list[Any]) -> None:
    assert found == jsonpath.compile(path)(VALUE)


@pytest.mark.parametrize(
    "path", ["a", ".a[", ".a[x]", ".a[]", ".a[-]", ".a[?(@.b", ".a[?(@.b=<1)]", ".a[?(@.b)", ".a}b"]
)
def test_invalid_path_is_refused(path: str) -> None:
    with pytest.raises(jsonpath.BadPath):
        jsonpath.compile(path)
