"""Of a distribution only what an agent loads travels, with its licence; nothing tells where it was installed."""

from __future__ import annotations

import pytest

from bramley.app.agent_bundle import packages
from bramley.base.errors import BadConfiguration


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
    assert packages.is_needed(name)


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
def test_notes_on_the_installation_sources_and_tests_are_not(name: str) -> None:
    assert not packages.is_needed(name)


def test_what_a_package_requires_comes_with_it() -> None:
    found = {packages.key(one.name) for one in packages.installed({"aiohttp"})}

    assert {"aiohttp", "aiosignal", "attrs", "frozenlist", "idna", "multidict", "yarl"} <= found
    # Asked for with an extra only.
    assert "brotli" not in found


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(BadConfiguration, match="the agent imports nothing_of_that_name"):
        packages.installed({"aiohttp", "nothing_of_that_name"})
