"""Imports every module of ours in an installed agent, and prints where each module and library was loaded from."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main(library: Path) -> None:
    sys.path.append(str(library))
    for path in sorted(library.glob("bramley/**/*.py")):
        name = ".".join(path.relative_to(library).with_suffix("").parts)
        # It runs the agent when it is executed as the main module.
        importlib.import_module(name.removesuffix(".__init__"))
    specs = [getattr(module, "__spec__", None) for module in sys.modules.values()]
    sources = {spec.origin for spec in specs if spec and spec.has_location and spec.origin}
    mapped = {line.split(maxsplit=5)[5] for line in _maps() if "/" in line}
    json.dump({"sources": sorted(sources), "mapped": sorted(mapped)}, sys.stdout)


def _maps() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
