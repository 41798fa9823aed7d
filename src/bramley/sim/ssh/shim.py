"""A program of the simulated Mac within its root: hands the call to the server, does what it asks for, and ends as it says.

It knows no program itself. The server may ask for standard input, or for a line typed at a prompt; the answer then goes out on
the program's own files. Imports are few, since each call is a process: `shim.py NAME ARGUMENT…`.
"""

import json
import os
import resource
import socket
import sys
from typing import Any

RUN = "/.mac/run"
DOOR = "door"
STANDARD_FILES = (0, 1, 2)
_NOT_FOUND = 127
_HIDDEN = ("LD_LIBRARY_PATH",)


def main() -> int:
    """Let the server answer one call, and return its exit code."""
    door = socket.socket(socket.AF_UNIX)
    try:
        door.connect(f"{RUN}/{DOOR}")
        _send(door, _call(), files=True)
        return _talk(door)
    except OSError as error:
        sys.stderr.write(f"{sys.argv[1]}: the simulated Mac does not answer: {error.strerror}\n")
        return _NOT_FOUND


def _call() -> dict[str, Any]:
    environment = {key: each for key, each in os.environ.items() if key not in _HIDDEN}
    return {
        "argv": sys.argv[1:],
        "cwd": _folder(),
        "environment": environment,
        "on_terminal": os.isatty(0),
        # A full disk stays full for what another user does on our behalf.
        "largest_file": resource.getrlimit(resource.RLIMIT_FSIZE)[0],
    }


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - pathlib would cost more than all the rest
    except OSError:
        return "/"


def _talk(door: socket.socket) -> int:
    """Answer what the server asks until it says how the call ended."""
    answers = door.makefile("rb")
    while line := answers.readline():
        said = json.loads(line)
        if "code" in said:
            _print(1, said.get("out", ""))
            _print(2, said.get("err", ""))
            return int(said["code"])
        _print(2, said.get("err", ""))
        given = _typed(said["prompt"]) if "prompt" in said else _all_of_it()
        _send(door, {"stdin": given.decode("latin-1")})
    # The Mac went down in the middle of it.
    return 1


def _typed(prompt: str) -> bytes:
    """Return a line, from a terminal without echo; of a pipe not one byte more is taken."""
    import termios

    try:
        before = termios.tcgetattr(0)
    except termios.error:
        _print(2, prompt)
        return _line()
    silent = [*before]
    silent[3] = before[3] & ~termios.ECHO
    termios.tcsetattr(0, termios.TCSADRAIN, silent)
    try:
        _print(2, prompt)
        return _line()
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        _print(2, "\n")


def _line() -> bytes:
    """Return a line with its end, which is missing where the input has ended."""
    line = b""
    while one := os.read(0, 1):
        line += one
        if one == b"\n":
            break
    return line


def _all_of_it() -> bytes:
    blocks = []
    while block := os.read(0, 65536):
        blocks.append(block)
    return b"".join(blocks)


def _print(file: int, text: str) -> None:
    left = text.encode("utf-8", "surrogateescape")
    while left:
        left = left[os.write(file, left) :]


def _send(door: socket.socket, message: dict[str, Any], *, files: bool = False) -> None:
    """Send one message with its length before it, and the standard files with the first byte."""
    content = json.dumps(message).encode()
    header = len(content).to_bytes(4, "big")
    if files:
        socket.send_fds(door, [header], list(STANDARD_FILES))
    else:
        door.sendall(header)
    door.sendall(content)


if __name__ == "__main__":
    sys.exit(main())
