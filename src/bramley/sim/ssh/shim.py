"""A program of the simulated Mac in its sandbox: sends the call to the server, and exits with the server's result.

It has no program logic. The server may request standard input, or a line typed at a prompt; the result is then printed. Each call is a
process, so very little is imported: `shim.py NAME ARGUMENT…`.

The call is sent as NUL-terminated words, preceded by their length, with the three standard files attached. Replies are a letter and
three texts, each preceded by its length: E(nd) with code, stdout and stderr; P(rompt) and I(nput), to which the shim replies with bytes.
"""

import os
import resource
import sys

# Not `socket`: importing it takes as long as everything else together.
from _socket import AF_UNIX, SCM_RIGHTS, SOL_SOCKET, socket

RUN = "/.mac/run"
SOCKET = "socket"
END, PROMPT, INPUT = b"E", b"P", b"I"
_NOT_FOUND = 127
_HIDDEN = "LD_LIBRARY_PATH="
_THREE_FILES = (0).to_bytes(4, "little") + (1).to_bytes(4, "little") + (2).to_bytes(4, "little")


def main() -> int:
    """Send one call to the server and return its exit code."""
    server = socket(AF_UNIX)
    try:
        server.connect(f"{RUN}/{SOCKET}")
        call = b"".join(word + b"\0" for word in _words())
        sized = len(call).to_bytes(4, "big")
        server.sendmsg([sized], [(SOL_SOCKET, SCM_RIGHTS, _THREE_FILES)])
        server.sendall(call)
        return _handle_replies(server)
    except OSError as error:
        _print(2, f"{sys.argv[1]}: the simulated Mac does not respond: {error.strerror}\n".encode())
        return _NOT_FOUND


def _words() -> list[bytes]:
    """Return the call: whether on a terminal, file size limit, folder, number of arguments, arguments, environment."""
    # A full disk is simulated by this limit; it must hold for sudo, too.
    largest_file = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    words = [str(int(os.isatty(0))), str(largest_file), _folder(), str(len(sys.argv) - 1)]
    variables = [f"{key}={each}" for key, each in os.environ.items()]
    words += [*sys.argv[1:], *(each for each in variables if not each.startswith(_HIDDEN))]
    return [os.fsencode(word) for word in words]


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - pathlib would cost more than all the rest
    except OSError:
        return "/"


def _handle_replies(server: socket) -> int:
    """Handle the server's requests until it sends the result."""
    while kind := _receive(server, 1):
        code, out, error = (
            _receive(server, int.from_bytes(_receive(server, 4), "big")) for _ in range(3)
        )
        if kind == END:
            _print(1, out)
            _print(2, error)
            return int(code)
        _print(2, error)
        reply = _read_line_without_echo(out) if kind == PROMPT else _read_all()
        server.sendall(len(reply).to_bytes(4, "big") + reply)
    # The Mac was shut down during the call.
    return 1


def _receive(server: socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = server.recv(size - len(content))
        if not part:
            return b""
        content += part
    return content


def _read_line_without_echo(prompt: bytes) -> bytes:
    """Return a line, from a terminal without echo; not one byte more is read from a pipe."""
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
    """Return a line with its newline, which is missing at the end of the input."""
    line = b""
    while char := os.read(0, 1):
        line += char
        if char == b"\n":
            break
    return line


def _read_all() -> bytes:
    blocks = []
    while block := os.read(0, 65536):
        blocks.append(block)
    return b"".join(blocks)


def _print(file: int, text: bytes) -> None:
    while text:
        text = text[os.write(file, text) :]


if __name__ == "__main__":
    sys.exit(main())
