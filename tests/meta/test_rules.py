"""Rules that no linter checks: catching every exception, starting tasks, reading the environment, binding addresses."""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from pathlib import Path

import pytest

from tests.meta.documents import SOURCES, name_of, own_files

# The only places that may catch every exception: the boundaries of a reconcile, a request or a process.
CATCH_ALL = {
    "src/bramley/base/errors.py",
    "src/bramley/runtime/worker.py",  # around a reconcile, where a context manager costs more than most of them
    "src/bramley/apiserver/server/api.py",
    "src/bramley/kube/in_process.py",  # stands where the HTTP server stands between processes
    "src/bramley/cli/main.py",
    "src/bramley/cli/tart_kubelet.py",
}
CATCHES_ALL = re.compile(r"\bexcept\s*(?:\*\s*)?(?::|[^:]*\b(?:Base)?Exception\b)")
# Spelt so that this file does not contain what it forbids.
FORBIDDEN = {
    # A plain text that is searched first, which is fast, and the pattern that decides.
    "/wor" + "k/": r"(?<![\w.])/wor" + r"k/",
    "../shar" + "ed": r"\.\./shar" + r"ed",
    "/ro" + "ot/": r"(?<![\w.])/ro" + r"ot/",
    "/opt/whe" + "els": r"/opt/whe" + r"els",
    "hou" + "se-style": r"\bhou" + r"se-style",
    "DESI" + "GN": r"\bDESI" + r"GN\b",
}


def modules() -> list[Path]:
    return sorted(SOURCES.rglob("*.py"))


@functools.cache
def handlers() -> list[tuple[str, ast.ExceptHandler]]:
    return [
        (name_of(path), node)
        for path in modules()
        # Few files catch everything; the others need not be parsed.
        if CATCHES_ALL.search(text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ExceptHandler)
    ]


def catches(handler: ast.ExceptHandler) -> set[str]:
    return (
        {"BaseException"}
        if handler.type is None
        else set(re.findall(r"\w+", ast.unparse(handler.type)))
    )


def test_catch_all_handlers_are_only_at_boundaries() -> None:
    found = {place for place, node in handlers() if "Exception" in catches(node)}

    assert found <= CATCH_ALL


def test_base_exceptions_are_caught_only_to_clean_up_and_raised_again() -> None:
    found = [
        f"{place}:{node.lineno}"
        for place, node in handlers()
        if "BaseException" in catches(node)
        and not (isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None)
    ]

    assert found == []


def test_tasks_are_started_in_task_groups() -> None:
    loose = re.compile(r"(?:asyncio|loop|get_running_loop\(\))\.create_task|ensure_future")

    found = [name_of(path) for path in modules() if loose.search(path.read_text())]

    assert found == []


def test_only_the_command_line_reads_the_environment() -> None:
    reads = re.compile(r"os\.(?:environ|getenv)")

    found = {name_of(path) for path in modules() if reads.search(path.read_text())}
    # Where no environment is handed in, a client finds its kubeconfig as kubectl does.
    found -= {"src/bramley/kube/config_loader.py"}
    # Programs of simulated Macs, which start as processes of their own.
    found -= {
        f"src/bramley/sim/{name}.py"
        for name in (
            "mac/shim",
            "tart/process",
            "tart/guest_process",
            "ssh/shim",
            "ssh/tart_bundle",
        )
    }

    assert {place for place in found if not place.startswith("src/bramley/cli/")} == set()


def compared(tree: ast.AST) -> set[ast.AST]:
    """Return the literals that are only compared: members of sets, keys of mappings and sides of comparisons."""
    sets = [node for node in ast.walk(tree) if isinstance(node, ast.Set)]
    mappings = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    comparisons = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    keys = {key for node in mappings for key in node.keys if key is not None}
    keys |= {member for node in sets for member in node.elts}
    return keys | {side for node in comparisons for side in (node.left, *node.comparators)}


def test_nothing_binds_to_all_interfaces_by_default() -> None:
    everywhere = re.compile(r"(?:0\.0\.0\.0|\[?::\]?)(?::\d+)?|:\d+")
    literal = re.compile(rf"[\"'}}](?:{everywhere.pattern})[\"'{{]")
    found = []
    for path in set(modules()) - {SOURCES / "api/names/flags.py"}:  # the contract, not what we do
        text = path.read_text()
        if not literal.search(text):
            continue
        tree = ast.parse(text)
        used = set(ast.walk(tree)) - compared(tree)
        found += [
            f"{name_of(path)}:{node.lineno}"
            for node in used
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and everywhere.fullmatch(node.value)
        ]

    assert found == []


def test_no_comment_is_a_todo() -> None:
    marker = re.compile(r"#.*\b(?:TODO|FIXME|XXX|HACK)\b")

    assert [name_of(path) for path in modules() if marker.search(path.read_text())] == []


def test_each_noqa_has_a_reason() -> None:
    silent = re.compile(r"# noqa(?!: [A-Z]+\d+(?:, [A-Z]+\d+)* - \S)")

    assert [name_of(path) for path in modules() if silent.search(path.read_text())] == []


@functools.cache
def texts() -> dict[str, str]:
    found = {}
    for path in own_files():
        with contextlib.suppress(UnicodeDecodeError):
            found[name_of(path)] = path.read_text()
    return found


@pytest.mark.parametrize("word", FORBIDDEN)
def test_no_file_mentions_the_machine_it_was_written_on(word: str) -> None:
    found = (name for name, text in texts().items() if word in text)

    assert [name for name in found if re.search(FORBIDDEN[word], texts()[name])] == []
