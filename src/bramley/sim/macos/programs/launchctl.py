"""launchctl: shows and changes launchd's jobs, with the messages and exit codes of the real program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from bramley.sim.macos import launchd, loginwindow, users
from bramley.sim.macos.call import Call, Exit, Result
from bramley.sim.macos.launchd import RefusedByLaunchd

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac

USAGE = 64
_Command = Callable[["Mac", Call, list[str]], Result]


def launchctl(mac: Mac, call: Call) -> Result:
    """Run one subcommand."""
    name, *words = call.argv[1:] or ("help",)
    command = _COMMANDS.get(name)
    if command is None:
        return Result(USAGE, err=f"Unrecognized subcommand: {name}\n")
    return command(mac, call, words)


def _wrong_target() -> Exit:
    return Exit(Result(USAGE, err="Unrecognized target specifier.\n"))


def _target(words: list[str], *, is_service: bool | None = None) -> tuple[str, str]:
    """Return the domain and the label of the only word; the label of a domain is empty."""
    kind, *rest = words[0].split("/") if len(words) == 1 else ("",)
    if kind in {"gui", "user"} and rest and rest[0].isdigit():
        kind = f"{kind}/{rest.pop(0)}"
    elif kind != launchd.SYSTEM:
        raise _wrong_target()
    if len(rest) > 1 or is_service not in {None, bool("".join(rest))}:
        raise _wrong_target()
    return kind, "".join(rest)


def _no_service(domain: str, label: str) -> Result:
    message = (
        f'Bad request.\nCould not find service "{label}" in domain for {_domain_name(domain)}\n'
    )
    return Result(launchd.NO_SERVICE, err=message)


def _domain_name(domain: str) -> str:
    kind, _, uid = domain.partition("/")
    return f"user {kind}: {uid}" if uid else kind


def _may_change(mac: Mac, call: Call, domain: str) -> bool:
    """Return whether the caller may change a domain: root may, and users may change their own."""
    return call.is_root or domain.endswith(f"/{users.uid_of(mac.state, call.user)}")


def _print(mac: Mac, call: Call, words: list[str]) -> Result:
    """Print a domain or a service; only root may see domains of users, even if the domain is the caller's own."""
    domain, label = _target(words)
    if domain != launchd.SYSTEM and not call.is_root:
        return _not_permitted("Could not print domain")
    state = mac.state
    if not launchd.has_domain(state, domain):
        message = f"Bad request.\nCould not find domain for {_domain_name(domain)}\n"
        return Result(launchd.NO_DOMAIN, err=message)
    if not label:
        return _lines(_domain(state, domain))
    job = launchd.find(state, f"{domain}/{label}")
    if job is None:
        return _no_service(domain, label)
    return _lines(_service(domain, job))


def _lines(lines: Iterable[str]) -> Result:
    return Result(out="".join(f"{line}\n" for line in lines))


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
    yield from (f"\t{line}" for line in _run_state(job))
    yield "}"


def _run_state(job: Mapping[str, Any]) -> Iterator[str]:
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
        return _lines(("PID\tStatus\tLabel", *lines))
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
    return _lines((*lines, *pid, "};"))


def _bootstrap(mac: Mac, call: Call, words: list[str]) -> Result:
    domain, _ = _target(words[:1], is_service=False)
    if len(words) == 1:
        raise _wrong_target()
    with mac.change() as state:
        try:
            _require(mac, call, domain)
            for path in words[1:]:
                launchd.load(mac, state, domain, path)
        except RefusedByLaunchd as refused:
            return _failed("Bootstrap failed", refused, call)
    return Result()


def _bootout(mac: Mac, call: Call, words: list[str]) -> Result:
    domain, label = _target(words[:1], is_service=len(words) == 1)
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
    """Boot out the job of a file; without one, launchd only reports an I/O error."""
    targets = [target for target, job in launchd.jobs(state, domain) if job["path"] == path]
    if not targets:
        raise RefusedByLaunchd(launchd.INPUT_OUTPUT)
    launchd.unload(mac, state, targets[0])


def _require(mac: Mac, call: Call, domain: str) -> None:
    if not _may_change(mac, call, domain):
        raise RefusedByLaunchd(launchd.NOT_PERMITTED)


def _failed(what: str, refused: RefusedByLaunchd, call: Call) -> Result:
    hint = "" if call.is_root else "Try re-running the command as root for richer errors.\n"
    return Result(refused.code, err=f"{what}: {refused}\n{hint}")


def _not_permitted(what: str) -> Result:
    code = launchd.NOT_PERMITTED
    return Result(code, err=f"{what}: {code}: {launchd.MESSAGES[code]}\n")


def _kickstart(mac: Mac, call: Call, words: list[str]) -> Result:
    options = {letter for word in words[:-1] for letter in word.removeprefix("-")}
    if options - set("kps"):
        raise _wrong_target()
    domain, label = _target(words[-1:], is_service=True)
    target = f"{domain}/{label}"
    with mac.change() as state:
        if launchd.find(state, target) is None:
            return _no_service(domain, label)
        is_refused = "k" in options and label in state["launchd"].get("protected", [])
        if is_refused or not _may_change(mac, call, domain):
            return _not_permitted(f'Could not kickstart service "{label}"')
        if "k" in options or launchd.pid_of(state, label, domain) is None:
            _restart(mac, state, target)
        pid = launchd.pid_of(state, label, domain)
    return Result(out=f"{pid}\n" if "p" in options else "")


def _restart(mac: Mac, state: dict[str, Any], target: str) -> None:
    launchd.restart(mac, state, target)
    if target == loginwindow.TARGET:
        loginwindow.restart(mac, state)


def _kill(mac: Mac, call: Call, words: list[str]) -> Result:
    domain, label = _target(words[1:], is_service=True)
    target = f"{domain}/{label}"
    with mac.change() as state:
        if launchd.pid_of(state, label, domain) is None:
            return _no_service(domain, label)
        if not _may_change(mac, call, domain):
            return _not_permitted("Could not signal service")
        launchd.hang_up(mac, state, target)
        if target == loginwindow.TARGET:
            loginwindow.log_out(mac, state)
    return Result()


def _set_disabled(mac: Mac, call: Call, words: list[str], *, disabled: bool) -> Result:
    domain, _ = _target(words, is_service=True)
    if not _may_change(mac, call, domain):
        return _not_permitted("Could not change service")
    with mac.change() as state:
        state["launchd"]["disabled"][words[0]] = disabled
    return Result()


def _print_disabled(mac: Mac, call: Call, words: list[str]) -> Result:
    del call
    domain, _ = _target(words, is_service=False)
    services = sorted(mac.state["launchd"]["disabled"].items())
    lines = [
        f'\t\t"{target.rpartition("/")[2]}" => {"disabled" if disabled else "enabled"}'
        for target, disabled in services
        if launchd.domain_of(target) == domain
    ]
    return _lines(("\tdisabled services = {", *lines, "\t}"))


def _load(mac: Mac, call: Call, words: list[str]) -> Result:
    """Fail as the legacy command does over SSH: it never reaches a session, and its exit code is 0."""
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
    "enable": partial(_set_disabled, disabled=False),
    "disable": partial(_set_disabled, disabled=True),
    "load": _load,
}
