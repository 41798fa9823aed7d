"""`tart-kubelet`: the agent on a Mac. To keep the agent small, each command line imports only what it needs.

Exit codes: 0 stopped by a signal, 1 failed, 2 invalid usage or configuration, 70 a bug in Bramley.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bramley.api.names import agent, flags
from bramley.cli import agent_flags

if TYPE_CHECKING:
    from bramley.cli.agent_flags import FlagValues

LEASE = "lease"
_IMPORT_ENVIRONMENT = {
    "SSL_CERT_FILE": os.devnull,
    "SSL_CERT_DIR": os.devnull,
    "FROZENLIST_NO_EXTENSIONS": "1",
}


def run(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Run one command line and return its exit code."""
    variables = os.environ if environment is None else environment
    if arguments and arguments[0] == LEASE:
        from bramley.cli import lease

        return lease.run(arguments[1:])
    try:
        values, parsed = agent_flags.read(arguments, variables)
        if parsed.version:
            return _show_version()
        return _run(values, variables, only_show=parsed.show_settings)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - reported as one line, not as a traceback
        from bramley.cli import failures

        return failures.report(agent.NAME, error)


def _show_version() -> int:
    from importlib.metadata import version

    _print(f"{agent.NAME} {version('bramley')}")
    return 0


def _run(values: FlagValues, variables: Mapping[str, str], *, only_show: bool) -> int:
    from bramley.base import log
    from bramley.cli import agent_settings

    settings = agent_settings.settings(values, variables)
    if only_show:
        effective = {flags.NODE_NAME.name: settings.node.name}
        _show(values, effective | {flags.TART_HOME.name: str(settings.folders.tart_home)})
        return 0
    log.configure(
        level=values.text(flags.AGENT_LOG_LEVEL),
        form=values.text(flags.AGENT_LOG_FORMAT),
        # The property lists of existing Macs write it to a file.
        stream=sys.stdout,
    )
    for name in agent_flags.ignored_flags(values):
        log.get(__name__).warning("Ignoring flag without effect", flag=name)
    _import_http_library()
    from bramley.app import agent as process

    explicit = not values.is_default(flags.KUBECONFIG) and values.source_name(
        flags.KUBECONFIG
    ).startswith("-")
    kubeconfig = values.text(flags.KUBECONFIG) if explicit else None
    process.run(settings, kubeconfig=kubeconfig, environment=variables)
    return 0


def _import_http_library() -> None:
    """Import the HTTP library without two of its parts, which cost the agent three megabytes at import.

    It would load every certificate authority of the system, while the agent trusts only that of its cluster, and a C++ runtime
    for a small list type that also exists in Python. The environment of the process is the same afterwards.
    """
    before = {name: os.environ.get(name) for name in _IMPORT_ENVIRONMENT}
    os.environ.update(_IMPORT_ENVIRONMENT)
    try:
        import bramley.kube.http  # noqa: F401 - imported for its side effect
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _show(args: FlagValues, effective: Mapping[str, str]) -> None:
    rows = [
        (name, effective.get(name) or args.text(entry.flag) or entry.default, args.sources[name])
        for entry in agent_flags.all_flags()
        for name in (entry.flag.name,)
    ]
    names = max(len(name) for name, _, _ in rows)
    values = max(len(value) for _, value, _ in rows)
    for name, value, source in rows:
        _print(f"{name:<{names}}  {value:<{values}}  {source}")


def _print(line: str) -> None:
    print(line)  # noqa: T201 - the output of the program


def main() -> None:
    """Run the command line of this process."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe; without this, Python would fail again when it flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
