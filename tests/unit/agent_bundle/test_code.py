"""The agent's archive contains what the agent imports at run time, determined from the sources."""

from __future__ import annotations

import functools
import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from bramley.app.agent_bundle import code
from bramley.base.errors import BadConfiguration
from tests.meta.documents import ROOT
from tools.agent_bundle import wheels


@functools.cache
def imports() -> code.ImportClosure:
    return code.agent_imports()


def write_package(folder: Path, **sources: str) -> Path:
    for name, text in sources.items():
        path = folder / "orchard" / f"{name.replace('__', '/') if name != '__init__' else name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_imports_are_followed_into_functions_and_up_to_packages(tmp_path: Path) -> None:
    sources = write_package(
        tmp_path,
        __init__="",
        start="def later():\n    from orchard import press\n",
        press="import json\nimport orchard.cellar.cask\nfrom barrels.oak import Stave\n",
        unused="import orchard.start",
    )
    (tmp_path / "orchard/cellar").mkdir()
    (tmp_path / "orchard/cellar/__init__.py").write_text("")
    (tmp_path / "orchard/cellar/cask.py").write_text(
        "try:\n    import hoops\nexcept E:\n    pass\n"
    )

    found = code.import_closure("orchard.start", sources)

    assert sorted(found.modules) == [
        "orchard",
        "orchard.cellar",
        "orchard.cellar.cask",
        "orchard.press",
        "orchard.start",
    ]
    assert found.third_party == {"barrels", "hoops"}


def test_type_checking_imports_are_left_out(tmp_path: Path) -> None:
    text = "if TYPE_CHECKING:\n    import orchard.types\n    import stubs\nelse:\n    import orchard.press\n"
    sources = write_package(tmp_path, __init__="", start=text, types="", press="")

    found = code.import_closure("orchard.start", sources)

    assert sorted(found.modules) == ["orchard", "orchard.press", "orchard.start"]
    assert found.third_party == set()


def test_relative_import_is_refused(tmp_path: Path) -> None:
    sources = write_package(tmp_path, __init__="", start="from . import press\n", press="")

    with pytest.raises(BadConfiguration, match=r"start\.py:1 has a relative import"):
        code.import_closure("orchard.start", sources)


def test_missing_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"there is no module orchard\.start"):
        code.import_closure("orchard.start", tmp_path)


def test_agent_imports_neither_server_nor_simulation_nor_host() -> None:
    folders = {name.split(".")[1] for name in imports().modules if "." in name}

    assert folders == {"agent", "api", "app", "base", "cli", "kube", "runtime"}


def test_lock_pins_exactly_the_required_distributions() -> None:
    pinned = re.findall(r"^([\w.-]+)==(\S+)(?: ; (.*?))? ", wheels.LOCK.read_text(), re.MULTILINE)
    needed = {
        code.normalized_name(one.name): one.version
        for one in code.required_distributions(imports().third_party)
    }

    unconditional = {name: version for name, version, marker in pinned if not marker}

    assert unconditional.items() <= needed.items()
    assert needed.items() <= {name: version for name, version, _ in pinned}.items()


def test_lock_has_no_platform_markers() -> None:
    """pip would evaluate them for the building platform."""
    assert not re.search(r"sys_platform|platform_|os_name", wheels.LOCK.read_text())


def test_agent_dependency_group_matches_its_imports() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    direct = packages_distributions()
    imported = {code.normalized_name(name) for top in imports().third_party for name in direct[top]}

    # Dependencies of aiohttp come with it.
    assert {code.normalized_name(name) for name in groups["agent"]} == imported - {
        "multidict",
        "yarl",
    }


@pytest.mark.parametrize(
    "name",
    [
        "yaml/__init__.py",
        "yaml/_yaml.cpython-311-darwin.so",
        "typing_extensions.py",
        "wheel.libs/libz.so.1",
        "aiohttp-3.dist-info/METADATA",
        "aiohttp-3.dist-info/licenses/LICENSE.txt",
        "aiohttp-3.dist-info/licenses/vendor/llhttp/LICENSE",
        "yaml-6.dist-info/LICENSE",
        "aiohttp/test_utils.py",
    ],
)
def test_code_and_licences_are_needed(name: str) -> None:
    assert code.is_needed(name)


@pytest.mark.parametrize(
    "name",
    [
        "yaml-6.dist-info/RECORD",
        "yaml-6.dist-info/INSTALLER",
        "yaml-6.dist-info/direct_url.json",
        "yaml-6.dist-info/REQUESTED",
        "yaml-6.dist-info/entry_points.txt",
        "yaml-6.data/scripts/yaml",
        "../../bin/idna",
        "/etc/passwd",
        "yaml/__pycache__/loader.cpython-311.pyc",
        "aiohttp/_http_parser.pyx",
        "aiohttp/_cparser.pxd",
        "aiohttp/.hash/_cparser.pxd.hash",
        "yarl/__init__.pyi",
        "yarl/py.typed",
        "multidict/_testcapi.cpython-311-darwin.so",
        "msgspec/tests/test_json.py",
    ],
)
def test_installation_records_sources_and_tests_are_not_needed(name: str) -> None:
    assert not code.is_needed(name)


def test_transitive_requirements_are_included() -> None:
    found = {code.normalized_name(one.name) for one in code.required_distributions({"aiohttp"})}

    assert {"aiohttp", "aiosignal", "attrs", "frozenlist", "idna", "multidict", "yarl"} <= found
    # Required by an extra only.
    assert "brotli" not in found


def test_missing_package_is_named() -> None:
    with pytest.raises(BadConfiguration, match="the agent imports nothing_of_that_name"):
        code.required_distributions({"aiohttp", "nothing_of_that_name"})
