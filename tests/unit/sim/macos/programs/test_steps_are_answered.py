"""Whatever the host's steps call, the model knows: nothing is refused as unknown on the way from a bare Mac to a Node and back."""

from __future__ import annotations

from pathlib import Path

from bramley.api.names import host
from bramley.base.clock import Clock
from bramley.host import converge, removal, report, sequence
from bramley.host.step import Step
from bramley.sim.macos.call import NOT_MODELLED, Call, Result
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.mac import NOT_FOUND, Mac
from tests import virtual_time
from tests.unit.host.steps import fixtures
from tests.unit.sim.macos.programs.clocks import Stopped

# What a bare Mac does not have, and steps ask for to see that.
BROUGHT = {host.TART_BINARY, host.TAILSCALE_BINARY, host.TAILSCALED_BINARY}


class Watched(Mac):
    """A Mac that remembers which calls it had no answer to."""

    unanswered: list[Call]

    def run(self, call: Call) -> Result:
        said = super().run(call)
        is_bare = said.code == NOT_FOUND and call.argv[0] in BROUGHT
        if said.code in {NOT_MODELLED, NOT_FOUND} and not is_bare:
            self.unanswered.append(call)
        return said


def watched(folder: Path, clock: Clock) -> Watched:
    mac = Watched.make(folder / "mac", clock=clock)
    assert isinstance(mac, Watched)
    mac.unanswered = []
    return mac


async def test_no_call_of_any_step_is_unknown_to_the_model(tmp_path: Path) -> None:
    mac = watched(tmp_path, virtual_time.clock())
    line = ModelConnection(mac, clock=virtual_time.clock())
    forth: list[Step] = sequence.steps(fixtures.spec(tmp_path), clock=virtual_time.clock())

    await converge.apply(line, forth)
    assert (await converge.plan(line, forth)).is_empty
    await line.probe(report.overview_probes("m1"))
    await converge.apply(line, removal.steps("m1", keep_tart=False))

    assert [call.argv for call in mac.unanswered] == []


def test_what_the_model_does_not_know_would_be_seen(tmp_path: Path) -> None:
    mac = watched(tmp_path, Stopped())

    for words in (("pfctl", "-k", "10.0.0.1"), ("no-such-program",)):
        mac.run(Call(words, "root"))

    assert len(mac.unanswered) == 2
