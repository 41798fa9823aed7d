"""The model supports every call of the host's steps, from a bare Mac to a Node and back."""

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
from tests.unit.sim.macos.programs.fixed_clock import FixedClock

# Programs that a bare Mac does not have, which steps call to find that out.
THIRD_PARTY = {
    host.HOMEBREW,
    host.TART_BINARY,
    host.TAILSCALE_BINARY,
    host.TAILSCALED_BINARY,
}


class RecordingMac(Mac):
    """A Mac that records the calls that are not modelled."""

    not_modelled: list[Call]

    def run(self, call: Call) -> Result:
        result = super().run(call)
        is_bare = result.code == NOT_FOUND and call.argv[0] in THIRD_PARTY
        if result.code in {NOT_MODELLED, NOT_FOUND} and not is_bare:
            self.not_modelled.append(call)
        return result


def recording_mac(folder: Path, clock: Clock) -> RecordingMac:
    mac = RecordingMac.create(folder / "mac", settings=fixtures.BUILDER_SETTINGS, clock=clock)
    assert isinstance(mac, RecordingMac)
    mac.not_modelled = []
    return mac


async def test_every_call_of_every_step_is_modelled(tmp_path: Path) -> None:
    mac = recording_mac(tmp_path, virtual_time.clock())
    connection = ModelConnection(mac, clock=virtual_time.clock())
    steps: list[Step] = sequence.steps(fixtures.builder_spec(tmp_path), clock=virtual_time.clock())

    await converge.apply(connection, steps)
    assert (await converge.plan(connection, steps)).is_empty
    await connection.probe(report.overview_probes("m1"))
    await converge.apply(connection, removal.steps("m1", keep_tart=False))

    assert [call.argv for call in mac.not_modelled] == []


def test_calls_that_are_not_modelled_are_recorded(tmp_path: Path) -> None:
    mac = recording_mac(tmp_path, FixedClock())

    for words in (("pfctl", "-k", "10.0.0.1"), ("no-such-program",)):
        mac.run(Call(words, "root"))

    assert len(mac.not_modelled) == 2
