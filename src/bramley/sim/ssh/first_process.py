"""Process 1 of a simulated Mac: starts programs as the users that it is told, and tells how they ended.

It runs inside the Mac's own root with the standard library only. Whatever it started dies with it, since it is the first
process of its namespace; it ends when the server that it belongs to is gone. It decides nothing: that is the server's part.
Requests come as one JSON message each, with the three standard files of the new process beside it.
"""

import contextlib
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import termios
import time
from pathlib import Path
from typing import Any

LONGEST = 4 * 1024 * 1024
STANDARD_FILES = 3
# Of unshare(2) and mount(2).
_NEW_USERS, _NEW_MOUNTS = 0x10000000, 0x00020000
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _REMOUNT = 1, 2, 4, 32
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 1 << 18
_LOOK_EVERY = 0.02
# As launchd waits for a job that is asked to end: 20 s.
_LOOKS = 1000
_WITH_SIGNALS_OF_OTHERS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def main() -> None:
    """Serve the server's requests until it is gone."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    events = socket.socket(fileno=int(sys.argv[2]))
    for line in (requests, events):
        # Ours alone: no program is to speak for the Mac's first process.
        line.set_inheritable(False)
    for number in _WITH_SIGNALS_OF_OTHERS:
        # For the first process of a Mac these are nothing: only what it handles reaches it, and it handles none.
        signal.signal(number, signal.SIG_IGN)
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([requests.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _reap(events)
        if requests.fileno() in ready and not _answer(requests):
            return


def _reap(events: socket.socket) -> None:
    """Tell of every process that has ended; those that others left behind end here, too."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            event = {"pid": pid, "code": os.waitstatus_to_exitcode(status)}
            events.sendall(json.dumps(event).encode() + b"\n")


def _answer(requests: socket.socket) -> bool:
    """Do one request; false when there is nobody left who could ask."""
    message, files, _, _ = socket.recv_fds(requests, LONGEST, STANDARD_FILES)
    if not message:
        return False
    request = json.loads(message)
    try:
        reply = _kill(request) if "kill" in request else {"pid": _spawn(request, files)}
    except OSError as error:
        reply = {"errno": error.errno}
    finally:
        for file in files:
            os.close(file)
    requests.send(json.dumps(reply).encode())
    return True


def _kill(request: dict[str, Any]) -> dict[str, Any]:
    """Send a signal to a process, or to the group that it leads."""
    send = os.killpg if request["group"] else os.kill
    try:
        send(request["kill"], request["signal"])
    except ProcessLookupError:
        return {"found": False}
    return {"found": True}


def _spawn(request: dict[str, Any], files: list[int]) -> int:
    """Start a program and return its pid once it runs; OSError if it cannot be started."""
    hears, tells = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _become(request, files, tells)
    os.close(tells)
    # One that waits for another to end cannot tell yet.
    failed = b"" if request["after"] else os.read(hears, 16)
    os.close(hears)
    if failed:
        raise OSError(int(failed), os.strerror(int(failed)))
    return pid


def _become(request: dict[str, Any], files: list[int], tells: int) -> None:
    """Turn this new process into the program; never returns."""
    try:
        _shed(request, files)
        os.execvpe(request["argv"][0], request["argv"], request["env"])  # noqa: S606 - what a person or launchd asked for
    except OSError as error:
        os.write(tells, str(error.errno or errno.EIO).encode())
    finally:
        os._exit(127)


def _make_standard(files: list[int]) -> None:
    """Let these be the standard files, and nothing else: a child with a second copy would hold the session open after its end."""
    for standard, file in enumerate(files):
        os.dup2(file, standard)
    for file in files:
        if file >= STANDARD_FILES:
            os.close(file)


def _shed(request: dict[str, Any], files: list[int]) -> None:
    """Take on everything that is the new process's own: session, files, limits, folder, and last its user."""
    signal.set_wakeup_fd(-1)
    for number in (*_WITH_SIGNALS_OF_OTHERS, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    _wait_for_end_of(request["after"])
    _make_standard(files)
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if request["largest_file"] is not None:
        # Writing fails instead of killing: the program is to tell that the disk is full.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest_file"],) * 2)
    os.umask(0o022)
    _take_user(request)
    try:
        os.chdir(request["cwd"])
    except OSError:
        os.chdir("/")


def _take_user(request: dict[str, Any]) -> None:
    """Become the user, or, where there is only one, stand for them: with their number, and without root's folders."""
    if request["plain"] is None:
        os.setgroups(request["groups"])
        os.setgid(request["gid"])
        os.setuid(request["uid"])
    elif request["uid"] != 0:
        _call("unshare", _NEW_USERS | _NEW_MOUNTS)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{request['uid']} 0 1")
        Path("/proc/self/gid_map").write_text(f"{request['gid']} 0 1")
        _close_folders(request["plain"])


def _close_folders(plain: dict[str, Any]) -> None:
    """Make folders read-only but for what is the user's own in them, and show the user's own door."""
    _mount("none", "/", _RECURSIVE | _PRIVATE)
    for path in plain["opened"]:
        with contextlib.suppress(FileNotFoundError):
            _mount(path, path, _BIND)
    for folder in plain["closed"]:
        _mount(folder, folder, _BIND | _RECURSIVE)
        _mount("none", folder, _REMOUNT | _BIND | _READ_ONLY | _NO_SETUID | _NO_DEVICES)
    _mount(plain["run"], "/.mac/run", _BIND)


def _mount(source: str, target: str, flags: int) -> None:
    _call("mount", source.encode(), target.encode(), None, flags, None)


def _call(name: str, *arguments: Any) -> None:
    import ctypes

    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _wait_for_end_of(pid: int) -> None:
    """Wait until a process has gone, which somebody has asked to end; one that does not is killed."""
    looks = 0
    with contextlib.suppress(ProcessLookupError):
        while pid:
            # Looks are counted, not seconds: while the machine stands still, nobody could have ended.
            looks += 1
            os.kill(pid, signal.SIGKILL if looks > _LOOKS else 0)
            time.sleep(_LOOK_EVERY)


if __name__ == "__main__":
    main()
