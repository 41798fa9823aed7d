"""`tart exec`: a command in the guest, by way of its agent; the guest's exit code is ours."""

import os

from bramley.sim.tart import layout
from bramley.sim.tart.arguments import Arguments
from bramley.sim.tart.effects import Answer, Ask, ReadStdin, RunHolder, Sleep, Steps, Write
from bramley.sim.tart.failures import Failed, is_not_running
from bramley.sim.tart.world import World

PATIENCE = 10.0


def execute(arguments: Arguments, world: World) -> Steps:
    """Run a command in a running VM."""
    name, *argv = arguments.positionals
    path = os.path.join(layout.existing(world.home, name), layout.CONFIG)
    holder: int | None = yield RunHolder(path)
    if holder is None:
        raise is_not_running(name)
    stdin: bytes = b""
    if arguments.has("interactive"):
        stdin = yield ReadStdin()
    answer: Answer | None = None
    if world.fault("exec", name, "no_agent"):
        yield Sleep(PATIENCE)
    else:
        answer = yield Ask(name, tuple(argv), stdin.decode(), PATIENCE)
    if answer is None:
        raise Failed(
            1, "Error: unavailable (14): failed to connect to the VM, is the guest agent running?"
        )
    yield Sleep(answer.seconds)
    if answer.stdout:
        yield Write(answer.stdout, is_error=False)
    if answer.stderr:
        yield Write(answer.stderr, is_error=True)
    return answer.code
