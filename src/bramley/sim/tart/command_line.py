"""The command line: the syntax of each command, help, and error messages.

Before each command but `pull` and `clone`, staging folders that are not locked are removed; so a killed pull can be resumed only if
no other command ran in between.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from bramley.sim.tart import bundles, effects, layout
from bramley.sim.tart.arguments import Arguments, Syntax, parse
from bramley.sim.tart.effects import Steps, Substeps
from bramley.sim.tart.failures import USAGE, Failed, WrongUsage
from bramley.sim.tart.settings import BadSettings, Context, apply_faults, read_context

BAD_SETTINGS = 78


class Verb(NamedTuple):
    """One command: its module, imported only when it is called, its function, its syntax, and a line of help."""

    module: str
    function: str
    syntax: Syntax
    about: str


def _syntax(positionals: str = "", options: str = "", flags: str = "", **more: Any) -> Syntax:
    return Syntax(tuple(positionals.split()), tuple(options.split()), tuple(flags.split()), **more)


_RUN = _syntax(
    "name",
    "dir disk root-disk-opts net-bridged net-softnet-allow net-softnet-block net-softnet-expose serial-path",
    "no-graphics graphics vnc vnc-experimental net-softnet net-host suspendable recovery rosetta nested serial no-audio no-clipboard "
    "no-trackpad no-pointer no-keyboard capture-system-keys",
)
_CREATE = _syntax("name", "from-ipsw disk-size disk-format", "linux")
_CLONE = _syntax(
    "source-name new-name", "concurrency prune-limit", "insecure deduplicate overwrite"
)
_SET = _syntax(
    "name",
    "cpu memory display disk-size",
    "random-mac random-serial display-refit no-display-refit",
)
_LIST = _syntax("", "source format", "quiet", short=(("q", "quiet"),))
_LOGIN = _syntax("host", "username", "password-stdin insecure no-validate")
_EXEC = _syntax(
    "name command",
    "",
    "interactive tty",
    short=(("i", "interactive"), ("t", "tty")),
    takes_rest=True,
)
_PULL = _syntax("remote-name", "concurrency", "insecure deduplicate")
_PUSH = _syntax(
    "local-name remote-names",
    "concurrency chunk-size label",
    "insecure populate-cache",
    repeats_last=True,
)
_PRUNE = _syntax("", "entries older-than space-budget cache-budget", "gc")
_STOP = _syntax("name", "timeout", short=(("t", "timeout"),))
_NAME = _syntax("name")
VERBS: Mapping[str, Verb] = {
    "create": Verb("vms", "create", _CREATE, "Create an empty VM"),
    "clone": Verb("vms", "clone", _CLONE, "Clone a VM or an image"),
    "run": Verb("run", "run", _RUN, "Run a VM"),
    "set": Verb("vms", "change", _SET, "Change a VM's hardware"),
    "get": Verb("queries", "get", _syntax("name", "format"), "Show a VM"),
    "list": Verb("queries", "listing", _LIST, "List VMs and cached images"),
    "login": Verb("registry", "login", _LOGIN, "Keep credentials of a registry"),
    "logout": Verb("registry", "logout", _syntax("host"), "Forget credentials of a registry"),
    "ip": Verb("queries", "ip", _syntax("name", "wait resolver"), "Print the address of a VM"),
    "exec": Verb("run", "execute", _EXEC, "Run a command in a VM"),
    "pull": Verb("pull", "pull", _PULL, "Pull an image"),
    "push": Verb("push", "push", _PUSH, "Push a VM to a registry"),
    "prune": Verb("prune", "prune", _PRUNE, "Delete what was not used for long"),
    "rename": Verb("vms", "rename", _syntax("name new-name"), "Rename a VM"),
    "stop": Verb("run", "stop", _STOP, "Stop a VM"),
    "suspend": Verb("run", "suspend", _NAME, "Save a VM's state and stop it"),
    "delete": Verb("vms", "delete", _syntax("name", repeats_last=True), "Delete VMs and images"),
    "fqn": Verb("vms", "fqn", _NAME, "Print the digest that a cached tag means"),
}
HELP_WORDS = frozenset({"--help", "-h", "help"})


def main(words: Sequence[str], process: effects.ProcessEnvironment) -> Steps:
    """Run one command line."""
    try:
        context = read_context(process)
    except BadSettings as error:
        yield effects.Err(f"simulated tart: {error}")
        return BAD_SETTINGS
    word = words[0] if words else "--help"
    if word == "--version":
        yield effects.Out(context.settings.version)
        return 0
    if word in HELP_WORDS or word not in VERBS:
        return (yield from _help(word))
    if HELP_WORDS & set(words[1:2]):
        yield effects.Out(usage(word))
        return 0
    return (yield from _report_failures(word, words[1:], context))


def _help(word: str) -> Steps:
    if word not in HELP_WORDS:
        yield effects.Err(f"Error: Unexpected argument '{word}'")
        yield effects.Err("Usage: tart <subcommand>\n  See 'tart --help' for more information.")
        return USAGE
    width = max(map(len, VERBS))
    lines = [f"  {name.ljust(width)}  {verb.about}" for name, verb in VERBS.items()]
    yield effects.Out("USAGE: tart <subcommand>\n\nSUBCOMMANDS:\n" + "\n".join(lines))
    return 0


def usage(verb: str) -> str:
    """Return the usage of a command."""
    syntax = VERBS[verb].syntax
    parts = [f"<{name}>" for name in syntax.positionals]
    parts += [f"[--{name} <{name}>]" for name in syntax.options]
    parts += [f"[--{name}]" for name in syntax.flags]
    return f"OVERVIEW: {VERBS[verb].about}\n\nUSAGE: tart {verb} {' '.join(parts)}"


def _report_failures(verb: str, arguments: Sequence[str], context: Context) -> Steps:
    """Run a command and print its failure."""
    try:
        return (yield from _run(verb, arguments, context))
    except WrongUsage as wrong:
        yield effects.Err(wrong.message)
        yield effects.Err(f"Usage: {usage(verb).rpartition('USAGE: ')[2]}")
        yield effects.Err(f"  See 'tart {verb} --help' for more information.")
        return USAGE
    except Failed as failed:
        yield effects.Err(failed.message)
        return failed.code
    except OSError as error:
        # Another process removed a file, or the real volume is full: print the system's message.
        yield effects.Err(f"Error: {error.strerror}: {error.filename}")
        return 1
    except effects.Interrupted:
        yield effects.Err("Error: CancellationError()")
        return 1


def _run(word: str, words: Sequence[str], context: Context) -> Steps:
    verb = VERBS[word]
    arguments = parse(words, verb.syntax)
    layout.prepare(context.home)
    if word not in {"pull", "clone"}:
        yield from _remove_unlocked_staging(context)
    target = target_of(word, arguments)
    yield from apply_faults(context, word, target, "start")
    module = import_module(f"bramley.sim.tart.{verb.module}")
    function: Callable[[Arguments, Context], Steps] = getattr(module, verb.function)
    code = yield from function(arguments, context)
    yield from apply_faults(context, word, target, "end")
    return code


def target_of(verb: str, arguments: Arguments) -> str:
    """Return the target by which faults match a call: what it creates or changes."""
    if verb == "clone":
        return arguments["new-name"]
    return arguments.positionals[0] if arguments.positionals else ""


def _remove_unlocked_staging(context: Context) -> Substeps:
    for entry in os.listdir(layout.staging(context.home)):
        path = os.path.join(layout.staging(context.home), entry)
        is_unlocked: bool = yield effects.Flock(path, wait=False)
        if is_unlocked:
            bundles.remove(path)
