"""The reader of console blocks, which runs the tutorial, reads them as people do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster import walkthrough
from tests.cluster.walkthrough import Step, matches, steps

DOCUMENT = """
Words.

```console
$ echo one
one
$ cat \\
    file
two
three
```

```console background
$ serve
Serving on …
```

```sh
$ not run
```

```console
$ tee x <<EOF
a: 1
EOF
a: 1
```
"""


def test_commands_and_their_output_are_separated() -> None:
    assert list(steps(DOCUMENT)) == [
        Step("echo one", "one", background=False),
        Step("cat \\\n    file", "two\nthree", background=False),
        Step("serve", "Serving on …", background=True),
        Step("tee x <<EOF\na: 1\nEOF", "a: 1", background=False),
    ]


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("NAME AGE\ndefault …s", "NAME      AGE\ndefault   12s\n"),
        ("first\n…\nlast", "first\nsecond\nthird\nlast\n"),
        ("first\n…", "first\n"),
        ("", ""),
        ("…", "anything\nat all\n"),
    ],
)
def test_ellipses_match_any_output(expected: str, printed: str) -> None:
    assert matches(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("one", "two\n"),
        ("one", "one\ntwo\n"),
        ("", "surprise\n"),
        ("one …", "one\n"),
        ("…\nz", "a\n"),
    ],
)
def test_other_output_does_not_match(expected: str, printed: str) -> None:
    assert not matches(expected, printed)


def test_a_walk_runs_in_order_and_ends_what_runs_in_the_background(tmp_path: Path) -> None:
    document = tmp_path / "walk.md"
    document.write_text(
        "```console background\n$ echo $$ > pid; echo ready; exec sleep 60\nready\n```\n"
        "```console\n$ export PID=$(cat pid)\n$ kill -0 $PID && echo runs\nruns\n```\n"
    )
    walk = walkthrough.Walk(tmp_path, {"PATH": "/usr/bin:/bin"}, tmp_path, deadline=180)

    assert walkthrough.run(document, walk) == 3

    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_command_in_the_background_that_is_shown_again_is_the_same_one(tmp_path: Path) -> None:
    document = tmp_path / "walk.md"
    command = "$ echo one; while [ ! -e go ]; do sleep 0.01; done; echo two; exec sleep 60\n"
    document.write_text(
        f"```console background\n{command}one\n```\n"
        "```console\n$ touch go\n```\n"
        f"```console background\n{command}one\ntwo\n```\n"
    )
    walk = walkthrough.Walk(tmp_path, {"PATH": "/usr/bin:/bin"}, tmp_path, deadline=180)

    assert walkthrough.run(document, walk) == 3


def test_a_command_that_fails_or_prints_something_else_stops_the_walk(tmp_path: Path) -> None:
    walk = walkthrough.Walk(tmp_path, {"PATH": "/usr/bin:/bin"}, tmp_path, deadline=180)
    document = tmp_path / "walk.md"

    for body in ("$ false\n", "$ echo one\ntwo\n"):
        document.write_text(f"```console\n{body}```\n")
        with pytest.raises(AssertionError):
            walkthrough.run(document, walk)
