"""Every metric, label, flag, event, kind and file that a document names in backticks exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.meta.documents import ROOT, inline_code, markdown, name_of, source_text

METRIC = re.compile(r"(?:bramley|tuist|tart_kubelet)_[a-z0-9_]+")
LABEL = re.compile(r"[a-z0-9.-]*\b(?:tuist\.dev|x-k8s\.io)/[A-Za-z0-9._-]+")
WORD = re.compile(r"(?:[A-Z][a-z0-9]+){2,}")
FILE = re.compile(r"(?:src|tests|tools|docs|bench|requirements|\.ci)/[\w./-]*\w")

# Flags of other programs that documents explain.
OTHERS_FLAGS = {
    "kubectl": {
        "--kubeconfig",
        "--validate",
        "--type",
        "--raw",
        "--server-side",
        "--field-selector",
        "--subresource",
        "--request-timeout",
    },
    "brew": {"--pinned", "--versions"},
    "pytest": {"--dist", "--randomly-seed"},
    "log": {"--last", "--predicate"},
    "pip": {"--require-hashes"},
    "tart": {
        "--chunk-size",
        "--deduplicate",
        "--disk",
        "--insecure",
        "--no-validate",
        "--overwrite",
        "--stacked",
    },
}
# Words of other projects in the same shape as our kinds and reasons.
OTHERS_WORDS = {"TaskGroup", "StrEnum", "ConfigMap", "ServiceAccount"}

documents = pytest.mark.parametrize("path", markdown(), ids=name_of)


def named(path: Path, pattern: re.Pattern[str]) -> set[str]:
    return {code for code in inline_code(path) if pattern.fullmatch(code)}


@documents
def test_metrics_exist(path: Path) -> None:
    code = source_text("src")

    def exists(name: str) -> bool:
        # The series of a histogram end in one of these, and so do counters of dispatch themselves.
        family = re.sub(r"_(?:bucket|count|sum)$", "", name)
        return f'"{name}"' in code or f'"{family}"' in code

    assert {name for name in named(path, METRIC) if not exists(name)} == set()


@documents
def test_labels_finalizers_and_groups_exist(path: Path) -> None:
    code = source_text("src/bramley/api")

    names = {name for name in named(path, LABEL) if not re.search(r"/v\d\w*$", name)}

    assert {name for name in names if f'"{name}"' not in code} == set()


@documents
def test_flags_exist(path: Path) -> None:
    flags = {
        flag for code in inline_code(path) for flag in re.findall(r"(?<!\S)--[a-z][\w-]+", code)
    }
    known = set().union(*OTHERS_FLAGS.values())
    code = source_text("src/bramley/cli", "src/bramley/api/names", "tools", "bench")

    # A switch is written with its opposite behind a slash.
    assert {
        each for each in flags - known if f'"{each}' not in code and f'/{each}"' not in code
    } == set()


@documents
def test_kinds_events_reasons_and_errors_exist(path: Path) -> None:
    code = source_text("src") + (ROOT / "tests/virtual_time.py").read_text()

    words = named(path, WORD) - OTHERS_WORDS

    assert {word for word in words if not re.search(rf"\b{word}\b", code)} == set()


@documents
def test_files_exist(path: Path) -> None:
    assert {name for name in named(path, FILE) if not (ROOT / name).exists()} == set()
