"""What of an interpreter's tree an agent does not need: tests, headers, windows, installers, and what others installed.

The rest of the standard library stays whole: it is small, and the interpreter's archive should not change with what the agent
happens to import.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_FOLDERS = frozenset(
    {
        *("test", "tests", "__phello__"),
        *("idlelib", "tkinter", "turtledemo"),
        *("ensurepip", "distutils", "venv", "lib2to3", "pydoc_data"),
        *("site-packages", "dist-packages", "__pycache__"),
    }
)
_FOLDER_PATTERN = re.compile(r"config-[\w.-]+")
_FILES = re.compile(
    r"(?:turtle|sitecustomize|usercustomize|__hello__)\.py"
    r"|(?:_tkinter|_test\w*|_ctypes_test|_xxtest\w*|xxlimited\w*)\.[\w.-]*(?:so|dylib)"
    r"|EXTERNALLY-MANAGED|.*\.(?:pyc|pyo|a|o|exe|orig)"
)


def is_unneeded(name: str) -> bool:
    """Tell whether an agent can do without a file of the standard library, named from that folder."""
    path = PurePosixPath(name)
    in_folder = any(part in _FOLDERS or _FOLDER_PATTERN.fullmatch(part) for part in path.parts[:-1])
    return in_folder or _FILES.fullmatch(path.name) is not None
