"""`tart-kubelet`: the agent on a Mac. Nothing is imported that this command line does not need: the agent stays small by it.

Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage or unusable configuration, 70 a bug of ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bramley.api.names import agent, flags
from bramley.cli import agent_flags

if TYPE_CHECKING:
    from bramley.cli.agent_flags import Given

LEASE = "lease"


def run(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Run one command line and return its exit code."""
    variables = os.environ if environment is None else environment
    if arguments and arguments[0] == LEASE:
        from bramley.cli import lease

        return lease.run(arguments[1:])
    try:
        given, parsed = agent_flags.read(arguments, variables)
        if parsed.version:
            return _show_version()
        return _run(given, variables, only_show=parsed.show_settings)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - people get a sentence, not a traceback
        from bramley.cli import failing

        return failing.tell(agent.NAME, error)


def _show_version() -> int:
    from importlib.metadata import version

    _print(f"{agent.NAME} {version('bramley')}")
    return 0


def _run(given: Given, variables: Mapping[str, str], *, only_show: bool) -> int:
    from bramley.base import log
    from bramley.cli import agent_settings

    settings = agent_settings.settings(given, variables)
    if only_show:
        effective = {flags.NODE_NAME.name: settings.node.name}
        _show(given, effective | {flags.TART_HOME.name: str(settings.folders.tart_home)})
        return 0
    log.configure(
        level=given.text(flags.AGENT_LOG_LEVEL),
        form=given.text(flags.AGENT_LOG_FORMAT),
        # Where the property lists of existing Macs collect it.
        stream=sys.stdout,
    )
    for name in agent_flags.without_effect(given):
        log.get(__name__).warning("Flag has no effect", flag=name)
    from bramley.cli import lean

    lean.load_http()
    from bramley.app import agent as process

    explicit = not given.is_default(flags.KUBECONFIG) and given.told(flags.KUBECONFIG).startswith(
        "-"
    )
    kubeconfig = given.text(flags.KUBECONFIG) if explicit else None
    process.run(settings, kubeconfig=kubeconfig, environment=variables)
    return 0


def _show(given: Given, effective: Mapping[str, str]) -> None:
    rows = [
        (name, effective.get(name) or given.text(known.flag) or known.default, given.sources[name])
        for known in agent_flags.everything()
        for name in (known.flag.name,)
    ]
    names = max(len(name) for name, _, _ in rows)
    values = max(len(value) for _, value, _ in rows)
    for name, value, source in rows:
        _print(f"{name:<{names}}  {value:<{values}}  {source}")


def _print(line: str) -> None:
    print(line)  # noqa: T201 - people asked for it


def main() -> None:
    """Run the command line of this process."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has seen enough; Python must not complain about it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
