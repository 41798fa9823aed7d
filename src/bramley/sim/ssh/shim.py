"""A program of the simulated Mac within its root: hands the call to the server, does what it asks for, and ends as it says.

It knows no program itself. The server may ask for standard input, or for a line typed at a prompt; the answer then goes out on
the program's own files. Each call is a process, so next to nothing is imported: `shim.py NAME ARGUMENT…`.

The call is sent as words that end in NUL, behind their length and with the three standard files. Answers are a letter and
three texts, each behind its length: E(nd) with code, output and errors, P(rompt) and I(nput), which want bytes sent back.
"""

import os
import resource
import sys

# Not `socket`: importing it takes as long as everything else together.
from _socket import AF_UNIX, SCM_RIGHTS, SOL_SOCKET, socket

RUN = "/.mac/run"
DOOR = "door"
END, PROMPT, INPUT = b"E", b"P", b"I"
_NOT_FOUND = 127
_HIDDEN = "LD_LIBRARY_PATH="
_THREE_FILES = (0).to_bytes(4, "little") + (1).to_bytes(4, "little") + (2).to_bytes(4, "little")


def main() -> int:
    """Let the server answer one call, and return its exit code."""
    door = socket(AF_UNIX)
    try:
        door.connect(f"{RUN}/{DOOR}")
        call = b"".join(word + b"\0" for word in _words())
        sized = len(call).to_bytes(4, "big")
        door.sendmsg([sized], [(SOL_SOCKET, SCM_RIGHTS, _THREE_FILES)])
        door.sendall(call)
        return _talk(door)
    except OSError as error:
        _print(2, f"{sys.argv[1]}: the simulated Mac does not answer: {error.strerror}\n".encode())
        return _NOT_FOUND


def _words() -> list[bytes]:
    """Return what this call is: terminal, limit, folder, how many arguments and environment."""
    # A full disk stays full for what another user does on our behalf.
    largest_file = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    words = [str(int(os.isatty(0))), str(largest_file), _folder(), str(len(sys.argv) - 1)]
    given = [f"{key}={each}" for key, each in os.environ.items()]
    words += [*sys.argv[1:], *(each for each in given if not each.startswith(_HIDDEN))]
    return [os.fsencode(word) for word in words]


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - pathlib would cost more than all the rest
    except OSError:
        return "/"


def _talk(door: socket) -> int:
    """Answer what the server asks until it says how the call ended."""
    while kind := _exactly(door, 1):
        code, out, error = (
            _exactly(door, int.from_bytes(_exactly(door, 4), "big")) for _ in range(3)
        )
        if kind == END:
            _print(1, out)
            _print(2, error)
            return int(code)
        _print(2, error)
        given = _typed(out) if kind == PROMPT else _all_of_it()
        door.sendall(len(given).to_bytes(4, "big") + given)
    # The Mac went down in the middle of it.
    return 1


def _exactly(door: socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = door.recv(size - len(content))
        if not part:
            return b""
        content += part
    return content


def _typed(prompt: bytes) -> bytes:
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
        _print(2, b"\n")


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


def _print(file: int, text: bytes) -> None:
    while text:
        text = text[os.write(file, text) :]


if __name__ == "__main__":
    sys.exit(main())
