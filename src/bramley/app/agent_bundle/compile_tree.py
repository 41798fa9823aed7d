"""Compile every module of a folder; run as `python -s -S -P -B compile_tree.py FOLDER`.

Bytecode depends on what its process compiled before, so a new process compiles everything in a fixed order. The bytecode holds
no time and no path of this machine: Python loads it unchecked, and inserts the path from which it is loaded.
"""

from __future__ import annotations

import importlib.util
import marshal
import sys
from pathlib import Path

# PEP 552: a hash-based pyc that is not compared with its source.
UNCHECKED_HASH = 0b01


def compile_folder(folder: Path) -> None:
    """Write a compiled module for each source in the folder."""
    for path in sorted(folder.rglob("*.py")):
        _compile(path, path.relative_to(folder).as_posix())


def _compile(path: Path, name: str) -> None:
    source = path.read_bytes()
    try:
        code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError):
        # Some libraries ship examples that do not compile; Python reports it if one is ever loaded.
        return
    cached = Path(importlib.util.cache_from_source(str(path), optimization=""))
    cached.parent.mkdir(exist_ok=True)
    cached.write_bytes(_header(source) + marshal.dumps(code))


def _header(source: bytes) -> bytes:
    magic = importlib.util.MAGIC_NUMBER
    return magic + UNCHECKED_HASH.to_bytes(4, "little") + importlib.util.source_hash(source)


if __name__ == "__main__":
    compile_folder(Path(sys.argv[1]))
