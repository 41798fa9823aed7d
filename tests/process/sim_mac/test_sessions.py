"""Commands over SSH on a simulated Mac: users, files, programs, sudo and terminals."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncssh
import pytest

from bramley.sim.ssh import tart_bundle
from tests.process.sim_mac.ssh_client import PASSWORD, TIMEOUT_SECONDS, served


async def test_shell_runs_as_the_user_in_the_sandbox(tmp_path: Path) -> None:
    async with served(tmp_path / "mac") as (host, mac):
        assert await mac.output_of("id -un; id -gn; pwd; sw_vers -productName") == (
            "m1\nstaff\n/Users/m1\nmacOS\n"
        )
        await mac.output_of(
            "printf %s \"$(cat)\" > 'a name' && chmod 640 'a name'", b'it\'s "quoted"'
        )
        assert (tmp_path / "mac/Users/m1/a name").read_bytes() == b'it\'s "quoted"'
        mine = (await mac.output_of("ls -ld 'a name'")).split()
        assert (mine[0], mine[2:4]) == ("-rw-r-----", ["m1", "staff"])
        others = (await mac.output_of("ls -ld /private/etc/pf.conf")).split()
        assert (others[0], others[2:4]) == ("-rw-r--r--", ["root", "wheel"])
        assert host.commands[-1] == "ls -ld /private/etc/pf.conf"


async def test_commands_stay_in_the_sandbox_and_only_root_writes_to_the_system(
    tmp_path: Path,
) -> None:
    async with served(tmp_path / "mac", may_sudo=True) as (_, mac):
        complaint = await mac.error_of("echo x > /etc/made")
        assert "Permission denied" in complaint or "Read-only" in complaint
        assert await mac.output_of("sudo sh -c 'echo x > /etc/made; id -u'") == "0\n"
        assert (tmp_path / "mac/etc/made").exists()
        # Neither the state with its passwords, nor the machine's own knobs, folders and programs.
        await mac.error_of("sudo cat /.mac/state.json")
        await mac.error_of("sudo sh -c 'echo 1 > /proc/sys/kernel/panic'")
        await mac.error_of(f"sudo ls {tmp_path}")
        for program in ("systemctl", "stat", "mount"):
            assert "not found" in await mac.error_of(program)


async def test_sudo_reads_the_password_and_the_program_reads_the_rest(tmp_path: Path) -> None:
    async with served(tmp_path / "mac") as (_, mac):
        assert "a password is required" in await mac.error_of("sudo -n true")
        assert "a terminal is required" in await mac.error_of("sudo true")
        output = await mac.error_of("sudo -S -p '' cat", b"wrong\nwrong too\n")
        assert "no password was provided" in output
        sent = f"{PASSWORD}\nrest\nof it".encode()
        assert await mac.output_of("sudo -S -p '' cat", sent) == "rest\nof it"

        grant = f"{PASSWORD}\nm1 ALL=(ALL) NOPASSWD: ALL\n".encode()
        await mac.output_of("sudo -S -p '' tee /etc/sudoers.d/m1-nopasswd", grant)

        output = await mac.output_of(
            "sudo -n FRUIT=apple sh -c 'echo $FRUIT; id -un'; sudo -u m1 id -un"
        )
        assert output == "apple\nroot\nm1\n"
        assert (await mac.run("sudo -n sh -c 'exit 7'")).exit_status == 7
        assert "command not found" in await mac.error_of("sudo -n systemctl")


@pytest.mark.parametrize(("typed", "code"), [(PASSWORD, 0), ("mistyped", 10)])
async def test_password_is_typed_without_echo(tmp_path: Path, typed: str, code: int) -> None:
    async with served(tmp_path / "mac") as (_, mac):
        connection = await mac.connection()
        process = await connection.create_process("dscl . -authonly m1", term_type="vt100")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            wait_for_process = await process.stdout.readuntil("Password: ")
            process.stdin.write(f"{typed}\n")
            wait_for_process += await process.stdout.read()
            done = await process.wait()

        assert done.exit_status == code
        assert typed not in wait_for_process


async def test_too_many_wrong_passwords_lock_the_account(tmp_path: Path) -> None:
    async with served(tmp_path / "mac") as (_, mac):
        await mac.error_of("sudo -S -p '' true", b"a\nb\nc\n")
        await mac.error_of("sudo -S -p '' true", b"d\ne\nf\n")

        assert "incorrect" in await mac.error_of("sudo -S -p '' true", f"{PASSWORD}\n".encode() * 3)


async def test_key_is_accepted_from_the_authorized_keys_of_the_user(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    async with served(tmp_path / "mac") as (host, mac):
        public = key.export_public_key()
        await mac.output_of("mkdir -m 700 .ssh; cat > .ssh/authorized_keys", public)
        await mac.output_of("chmod 666 .ssh/authorized_keys")

        def connect() -> asyncssh.misc._ACMWrapper[asyncssh.SSHClientConnection]:
            return asyncssh.connect(
                "127.0.0.1", host.port, username="m1", client_keys=[key], known_hosts=None,
                agent_path=None, config=None,
            )  # fmt: skip

        with pytest.raises(asyncssh.PermissionDenied):
            async with connect():
                pass
        await mac.output_of("chmod 600 .ssh/authorized_keys")
        async with connect() as connection:
            assert (await connection.run("id -un")).stdout == "m1\n"


async def test_simulated_tart_runs_from_the_bundle_that_a_bootstrap_installs(
    tmp_path: Path,
) -> None:
    archive = tart_bundle.archive()
    assert archive == tart_bundle.archive()
    async with served(tmp_path / "mac") as (_, mac):
        tart = "./tart.app/Contents/MacOS/tart"
        output = await mac.output_of(f"tar -xzf - && {tart} --version", archive)
        assert output == f"{tart_bundle.VERSION}\n"
        await mac.output_of(f"{tart} create --linux one")
        assert "one" in await mac.output_of(f"{tart} list")
        assert (tmp_path / "mac/Users/m1/.tart/vms/one").is_dir()
