"""The command line: `python -m tools.agent_bundle interpreter|code|linux|fetch`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bramley.app.agent_bundle import agent_archives, interpreter
from bramley.app.agent_bundle.archive import PYTHON_SERIES, Archive
from bramley.base.errors import BramleyError
from tools.agent_bundle import mac_code, standalone, wheels
from tools.kube.progress import Progress

_EXAMPLES = """examples:
  python -m tools.agent_bundle interpreter cpython-3.13.9+20251031-aarch64-apple-darwin-install_only.tar.gz \\
      --sha256 0123…cdef --folder dist
  python -m tools.agent_bundle code --interpreter dist/tart-kubelet-python-*-macos-arm64.tar.gz --folder dist
  python -m tools.agent_bundle linux --folder dist -o json

An interpreter's archive needs to be made once: keep it for as long as agents use that interpreter, and
build each release's code for it. Run this with the series of Python that the interpreter has.
"""
_FORMATS = ("text", "json")


def parser() -> argparse.ArgumentParser:
    """Describe the commands."""
    top = argparse.ArgumentParser(
        prog="python -m tools.agent_bundle",
        description="Make the agent's two archives, the interpreter and the code; equal inputs give equal bytes.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    python = commands.add_parser("interpreter", help="make the interpreter's archive for Macs")
    python.add_argument(
        "file", type=Path, metavar="FILE", help="python-build-standalone's install_only .tar.gz"
    )
    python.add_argument(
        "--sha256", required=True, metavar="HEX", help="its SHA-256, as its publisher names it"
    )
    code = commands.add_parser("code", help="make the code's archive for Macs")
    code.add_argument(
        "--interpreter", type=Path, required=True, metavar="ARCHIVE", help="what `interpreter` made"
    )
    linux = commands.add_parser(
        "linux", help="make both for this Linux machine, from the Python that runs this"
    )
    fetch = commands.add_parser("fetch", help="download the wheels of `code` into the user's cache")
    for command in (python, code, linux):
        command.add_argument(
            "--folder", type=Path, default=Path("dist"), help="where to put it; %(default)s"
        )
        command.add_argument(
            "-o", "--output", choices=_FORMATS, default="text", help="output format"
        )
    fetch.set_defaults(output="text")
    return top


def _interpreter(arguments: argparse.Namespace) -> list[Archive]:
    return [standalone.build(arguments.file, arguments.sha256, arguments.folder)]


def _code(arguments: argparse.Namespace) -> list[Archive]:
    return [mac_code.build(arguments.interpreter, arguments.folder)]


def _linux(arguments: argparse.Namespace) -> list[Archive]:
    made = agent_archives.build(arguments.folder)
    return [made.interpreter, made.code]


def _fetch(_: argparse.Namespace) -> list[Archive]:
    wheels.fetched(PYTHON_SERIES)
    return []


COMMANDS: dict[str, tuple[str, Callable[[argparse.Namespace], list[Archive]]]] = {
    "interpreter": ("Packing the interpreter", _interpreter),
    "code": ("Packing the agent's code", _code),
    "linux": (f"Packing {interpreter.NAME} and the agent's code", _linux),
    "fetch": ("Fetching the agent's wheels for Macs", _fetch),
}


def shown(archives: Sequence[Archive], form: str) -> str:
    """Return the result as text or JSON."""
    if form == "json":
        return json.dumps([_fields(archive) for archive in archives], indent=1)
    return "\n".join(
        f"{archive.path}\n  {archive.size:,} bytes, SHA-256 {archive.sha256}\n  belongs in {archive.manifest.folder}"
        for archive in archives
    )


def _fields(archive: Archive) -> dict[str, str | int]:
    manifest = archive.manifest
    return {
        "kind": manifest.kind.value,
        "version": manifest.version,
        "platform": manifest.platform.value,
        "path": str(archive.path),
        "size": archive.size,
        "sha256": archive.sha256,
        "content": manifest.content,
        "folder": manifest.folder,
    }


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; errors that the user can fix are printed without a traceback."""
    arguments = parser().parse_args(words)
    title, run = COMMANDS[arguments.command]
    try:
        with Progress().step(title):
            made = run(arguments)
    except BramleyError as error:
        print(f"tools.agent_bundle: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"tools.agent_bundle: {error.strerror or error} ({error.filename})", file=sys.stderr)
        return 1
    if output := shown(made, arguments.output):
        print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
