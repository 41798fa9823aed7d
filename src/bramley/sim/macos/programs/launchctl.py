"""launchctl: asks and changes launchd, in its own words and with its own exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bramley.sim.macos import launchd, loginwindow, users
from bramley.sim.macos.call import Call, Result
from bramley.sim.macos.launchd import RefusedByLaunchd

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac

USAGE = 64
_KINDS = (launchd.SYSTEM, "gui", "user")
_Command = Callable[["Mac", Call, list[str]], Result]


def launchctl(mac: Mac, call: Call) -> Result:
    """Answer one subcommand."""
    name, *words = call.argv[1:] or ("help",)
    command = _COMMANDS.get(name)
    if command is None:
        return Result(USAGE, err=f"Unrecognized subcommand: {name}\n")
    return command(mac, call, words)


def _usage(message: str = "Unrecognized target specifier.") -> Result:
    return Result(USAGE, err=f"{message}\n")


def _split(target: str) -> tuple[str, str] | None:
    """Return the domain of a target and its label, which is empty for a domain alone; None if it is neither."""
    kind, *rest = target.split("/")
    if kind not in _KINDS:
        return None
    if kind != launchd.SYSTEM:
        if not rest or not rest[0].isdigit():
            return None
        kind = f"{kind}/{rest.pop(0)}"
    return (kind, "/".join(rest)) if len(rest) <= 1 else None


def _no_service(domain: str, label: str) -> Result:
    message = (
        f'Bad request.\nCould not find service "{label}" in domain for {_domain_name(domain)}\n'
    )
    return Result(launchd.NO_SERVICE, err=message)


def _domain_name(domain: str) -> str:
    kind, _, uid = domain.partition("/")
    return f"user {kind}: {uid}" if uid else kind


def _may(mac: Mac, call: Call, domain: str) -> bool:
    """Return whether the caller may change a domain: root may, and users may change their own."""
    return call.is_root or domain.endswith(f"/{users.uid_of(mac.state, call.user)}")


def _print(mac: Mac, call: Call, words: list[str]) -> Result:
    del call
    split = _split(words[0]) if len(words) == 1 else None
    if split is None:
        return _usage()
    domain, label = split
    state = mac.state
    if not launchd.has_domain(state, domain):
        message = f"Bad request.\nCould not find domain for {_domain_name(domain)}\n"
        return Result(launchd.NO_DOMAIN, err=message)
    if not label:
        return Result(out="".join(f"{line}\n" for line in _domain(state, domain)))
    job = launchd.find(state, f"{domain}/{label}")
    if job is None:
        return _no_service(domain, label)
    return Result(out="".join(f"{line}\n" for line in _service(domain, job)))


def _domain(state: Mapping[str, Any], domain: str) -> Iterator[str]:
    kind = domain.partition("/")[0]
    yield f"{domain} = {{"
    yield f"\ttype = {'login' if kind == 'gui' else kind}"
    yield f"\tsession = {'Aqua' if kind == 'gui' else 'System' if kind == 'system' else 'Background'}"
    yield "\tservices = {"
    for target, job in launchd.jobs(state, domain):
        yield f"\t\t{job.get('pid', 0):8} {job.get('last_exit', '-'):>6} \t{target.rpartition('/')[2]}"
    yield "\t}"
    yield "}"


def _service(domain: str, job: Mapping[str, Any]) -> Iterator[str]:
    runs = "pid" in job
    yield f"{domain}/{job['label']} = {{"
    yield f"\tactive count = {int(runs)}"
    yield f"\tpath = {job['path']}"
    yield f"\ttype = {'LaunchDaemon' if domain == launchd.SYSTEM else 'LaunchAgent'}"
    yield f"\tstate = {'running' if runs else 'not running'}"
    yield ""
    yield f"\tprogram = {job['program'] or job['arguments'][0]}"
    yield "\targuments = {"
    yield from (f"\t\t{word}" for word in job["arguments"])
    yield "\t}"
    yield ""
    yield from (f"\t{line}" for line in _life(job))
    yield "}"


def _life(job: Mapping[str, Any]) -> Iterator[str]:
    if job["user"]:
        yield f"username = {job['user']}"
    yield f"minimum runtime = {job['throttle']}"
    yield f"runs = {job['runs_count']}"
    if "pid" in job:
        yield f"pid = {job['pid']}"
    code = job.get("last_exit", "(never exited)")
    yield f"last exit code = {'78: EX_CONFIG' if code == 78 else code}"


def _list(mac: Mac, call: Call, words: list[str]) -> Result:
    state = mac.state
    domain = launchd.SYSTEM if call.is_root else f"gui/{users.uid_of(state, call.user)}"
    if not words:
        lines = [
            f"{job.get('pid', '-')}\t{job.get('last_exit', 0)}\t{job['label']}"
            for _, job in launchd.jobs(state, domain)
        ]
        return Result(out="".join(f"{line}\n" for line in ("PID\tStatus\tLabel", *lines)))
    job = launchd.find(state, f"{domain}/{words[0]}")
    if job is None:
        message = f'Could not find service "{words[0]}" in domain for port\n'
        return Result(launchd.NO_SERVICE, err=message)
    pid = [f'\t"PID" = {job["pid"]};'] if "pid" in job else []
    lines = [
        "{",
        f'\t"Label" = "{job["label"]}";',
        f'\t"LastExitStatus" = {job.get("last_exit", 0)};',
    ]
    return Result(out="".join(f"{line}\n" for line in (*lines, *pid, "};")))


def _bootstrap(mac: Mac, call: Call, words: list[str]) -> Result:
    split = _split(words[0]) if len(words) > 1 else None
    if split is None or split[1]:
        return _usage()
    with mac.change() as state:
        try:
            _require(mac, call, split[0])
            for path in words[1:]:
                launchd.load(mac, state, split[0], path)
        except RefusedByLaunchd as refused:
            return _failed("Bootstrap failed", refused, call)
    return Result()


def _bootout(mac: Mac, call: Call, words: list[str]) -> Result:
    split = _split(words[0]) if words else None
    if split is None or bool(split[1]) == (len(words) > 1):
        return _usage()
    domain, label = split
    with mac.change() as state:
        try:
            _require(mac, call, domain)
            if label:
                launchd.unload(mac, state, f"{domain}/{label}")
            for path in words[1:]:
                _unload_path(mac, state, domain, path)
        except RefusedByLaunchd as refused:
            return _failed("Boot-out failed", refused, call)
    return Result()


def _unload_path(mac: Mac, state: dict[str, Any], domain: str, path: str) -> None:
    """Boot out the job of a file; launchd says no more than that it did not work if there is none."""
    found = [target for target, job in launchd.jobs(state, domain) if job["path"] == path]
    if not found:
        raise RefusedByLaunchd(launchd.INPUT_OUTPUT)
    launchd.unload(mac, state, found[0])


def _require(mac: Mac, call: Call, domain: str) -> None:
    if not _may(mac, call, domain):
        raise RefusedByLaunchd(launchd.NOT_PERMITTED)


def _failed(what: str, refused: RefusedByLaunchd, call: Call) -> Result:
    hint = "" if call.is_root else "Try re-running the command as root for richer errors.\n"
    return Result(refused.code, err=f"{what}: {refused}\n{hint}")


def _kickstart(mac: Mac, call: Call, words: list[str]) -> Result:
    options = {letter for word in words[:-1] for letter in word.removeprefix("-")}
    split = _split(words[-1]) if words else None
    if split is None or not split[1] or options - set("kps"):
        return _usage()
    domain, label = split
    target = f"{domain}/{label}"
    with mac.change() as state:
        if launchd.find(state, target) is None:
            return _no_service(domain, label)
        is_refused = "k" in options and label in state["launchd"].get("protected", [])
        if is_refused or not _may(mac, call, domain):
            message = f'Could not kickstart service "{label}": 1: {launchd.MESSAGES[launchd.NOT_PERMITTED]}\n'
            return Result(launchd.NOT_PERMITTED, err=message)
        if "k" in options or launchd.pid_of(state, label, domain) is None:
            _restart(mac, state, target)
        pid = launchd.pid_of(state, label, domain)
    return Result(out=f"{pid}\n" if "p" in options else "")


def _restart(mac: Mac, state: dict[str, Any], target: str) -> None:
    launchd.restart(mac, state, target)
    if target == loginwindow.TARGET:
        loginwindow.kick(mac, state)


def _kill(mac: Mac, call: Call, words: list[str]) -> Result:
    split = _split(words[1]) if len(words) == 2 else None
    if split is None or not split[1]:
        return _usage()
    domain, label = split
    target = f"{domain}/{label}"
    with mac.change() as state:
        if launchd.pid_of(state, label, domain) is None:
            return _no_service(domain, label)
        if not _may(mac, call, domain):
            return Result(
                launchd.NOT_PERMITTED, err="Could not signal service: 1: Operation not permitted\n"
            )
        launchd.hang_up(mac, state, target)
        if target == loginwindow.TARGET:
            loginwindow.log_out(mac, state)
    return Result()


def _enable(mac: Mac, call: Call, words: list[str]) -> Result:
    return _switch(mac, call, words, disabled=False)


def _disable(mac: Mac, call: Call, words: list[str]) -> Result:
    return _switch(mac, call, words, disabled=True)


def _switch(mac: Mac, call: Call, words: list[str], *, disabled: bool) -> Result:
    split = _split(words[0]) if len(words) == 1 else None
    if split is None or not split[1]:
        return _usage()
    if not _may(mac, call, split[0]):
        return Result(
            launchd.NOT_PERMITTED, err="Could not change service: 1: Operation not permitted\n"
        )
    with mac.change() as state:
        state["launchd"]["disabled"][words[0]] = disabled
    return Result()


def _print_disabled(mac: Mac, call: Call, words: list[str]) -> Result:
    del call
    split = _split(words[0]) if len(words) == 1 else None
    if split is None or split[1]:
        return _usage()
    switched = sorted(mac.state["launchd"]["disabled"].items())
    lines = [
        f'\t\t"{target.rpartition("/")[2]}" => {"disabled" if disabled else "enabled"}'
        for target, disabled in switched
        if launchd.domain_of(target) == split[0]
    ]
    return Result(out="".join(f"{line}\n" for line in ("\tdisabled services = {", *lines, "\t}")))


def _load(mac: Mac, call: Call, words: list[str]) -> Result:
    """Do what the old interface does over SSH: it never reaches a session, and its exit code is that of success."""
    del mac, call, words
    message = "Load failed: 5: Input/output error\nTry running `launchctl bootstrap` as root for richer errors.\n"
    return Result(0, err=message)


_COMMANDS: Mapping[str, _Command] = {
    "print": _print,
    "print-disabled": _print_disabled,
    "list": _list,
    "bootstrap": _bootstrap,
    "bootout": _bootout,
    "kickstart": _kickstart,
    "kill": _kill,
    "enable": _enable,
    "disable": _disable,
    "load": _load,
}
