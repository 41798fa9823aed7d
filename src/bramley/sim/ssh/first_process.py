"""Process 1 of a simulated Mac: starts programs as given users, and reports their exit codes.

It runs inside the Mac's own root with the standard library only. All processes die with it, since it is the first process of its
namespace; it exits when its server is gone. It decides nothing: the server does. A request is one JSON message, with the three
standard files of the new process attached.
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

MAX_MESSAGE = 4 * 1024 * 1024
STANDARD_FILES = 3
# Flags of unshare(2) and mount(2).
_NEW_USERS, _NEW_MOUNTS = 0x10000000, 0x00020000
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _REMOUNT = 1, 2, 4, 32
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 1 << 18
_POLL_SECONDS = 0.02
# launchd waits 20 s for a job to exit.
_MAX_POLLS = 1000
_IGNORED_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def main() -> None:
    """Serve the requests of the server until it is gone."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    events = socket.socket(fileno=int(sys.argv[2]))
    for each in (requests, events):
        # Programs must not inherit them.
        each.set_inheritable(False)
    for number in _IGNORED_SIGNALS:
        # A first process receives only signals that it handles, and launchd handles none of these.
        signal.signal(number, signal.SIG_IGN)
    wakeup_read, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([requests.fileno(), wakeup_read], [], [])
        if wakeup_read in ready:
            os.read(wakeup_read, 4096)
            _reap(events)
        if requests.fileno() in ready and not _handle_request(requests):
            return


def _reap(events: socket.socket) -> None:
    """Report every process that has exited, orphans included."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            event = {"pid": pid, "code": os.waitstatus_to_exitcode(status)}
            events.sendall(json.dumps(event).encode() + b"\n")


def _handle_request(requests: socket.socket) -> bool:
    """Handle one request; return False if the server is gone."""
    message, files, _, _ = socket.recv_fds(requests, MAX_MESSAGE, STANDARD_FILES)
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
    """Send a signal to a process, or to its group."""
    send = os.killpg if request["group"] else os.kill
    try:
        send(request["kill"], request["signal"])
    except ProcessLookupError:
        return {"found": False}
    return {"found": True}


def _spawn(request: dict[str, Any], files: list[int]) -> int:
    """Start a program and return its pid once it runs; OSError if it cannot be started."""
    # The write end is closed by a successful exec; before that the child writes its errno to it.
    error_read, error_write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _exec(request, files, error_write)
    os.close(error_write)
    # A process that waits for another one has not called exec yet.
    failed = b"" if request["after"] else os.read(error_read, 16)
    os.close(error_read)
    if failed:
        raise OSError(int(failed), os.strerror(int(failed)))
    return pid


def _exec(request: dict[str, Any], files: list[int], error_write: int) -> None:
    """Set up this new process and execute the program; never returns."""
    try:
        _set_up(request, files)
        os.execvpe(request["argv"][0], request["argv"], request["env"])  # noqa: S606 - a command of a user or a job
    except OSError as error:
        os.write(error_write, str(error.errno or errno.EIO).encode())
    finally:
        os._exit(127)


def _set_standard_files(files: list[int]) -> None:
    """Make these the standard files and close the originals: a second copy would keep the session open after the program's end."""
    for standard, file in enumerate(files):
        os.dup2(file, standard)
    for file in files:
        if file >= STANDARD_FILES:
            os.close(file)


def _set_up(request: dict[str, Any], files: list[int]) -> None:
    """Set session, files, limits, user and folder of the new process."""
    signal.set_wakeup_fd(-1)
    for number in (*_IGNORED_SIGNALS, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    _wait_for_exit_of(request["after"])
    _set_standard_files(files)
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if request["largest_file"] is not None:
        # A write fails instead of killing the program, as on a full disk.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest_file"],) * 2)
    os.umask(0o022)
    _set_user(request)
    try:
        os.chdir(request["cwd"])
    except OSError:
        os.chdir("/")


def _set_user(request: dict[str, Any]) -> None:
    """Set the user; without real users, map the uid in a new namespace and make root's folders read-only."""
    if request["mounts"] is None:
        os.setgroups(request["groups"])
        os.setgid(request["gid"])
        os.setuid(request["uid"])
    elif request["uid"] != 0:
        _call("unshare", _NEW_USERS | _NEW_MOUNTS)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{request['uid']} 0 1")
        Path("/proc/self/gid_map").write_text(f"{request['gid']} 0 1")
        _mount_as_user(request["mounts"])


def _mount_as_user(mounts: dict[str, Any]) -> None:
    """Make root's folders read-only except the user's files in them, and mount the user's own shim socket."""
    _mount("none", "/", _RECURSIVE | _PRIVATE)
    for path in mounts["writable"]:
        with contextlib.suppress(FileNotFoundError):
            _mount(path, path, _BIND)
    for folder in mounts["read_only"]:
        _mount(folder, folder, _BIND | _RECURSIVE)
        _mount("none", folder, _REMOUNT | _BIND | _READ_ONLY | _NO_SETUID | _NO_DEVICES)
    _mount(mounts["run"], "/.mac/run", _BIND)


def _mount(source: str, target: str, flags: int) -> None:
    _call("mount", source.encode(), target.encode(), None, flags, None)


def _call(name: str, *arguments: Any) -> None:
    import ctypes

    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _wait_for_exit_of(pid: int) -> None:
    """Wait until a process that was sent SIGTERM has exited; kill it after `_MAX_POLLS`."""
    polls = 0
    with contextlib.suppress(ProcessLookupError):
        while pid:
            # Polls are counted instead of seconds: a machine that was suspended must not kill the process early.
            polls += 1
            os.kill(pid, signal.SIGKILL if polls > _MAX_POLLS else 0)
            time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    main()
