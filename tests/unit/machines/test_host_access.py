"""The SSH keys of fleets, the logins of Macs, and where their host keys are pinned."""

from __future__ import annotations

import asyncio
from dataclasses import replace as replaced
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from msgspec.structs import replace

from bramley.api.core import Secret
from bramley.api.names import annotations as annotation_names
from bramley.api.names import secrets
from bramley.base import errors
from bramley.base.secret import Secret as Hidden
from bramley.host.ssh.host_keys import HostKey
from bramley.machines.bootstrap_secrets import BootstrapSecrets
from bramley.machines.host_access import (
    FleetKey,
    OwnedLogins,
    RentedLogins,
    SharedSecrets,
    store_host_key,
)
from bramley.machines.mac import Mac
from bramley.runtime.keys import Key
from tests import virtual_time
from tests.unit.machines.macs import a_mac
from tests.unit.machines.stored_secrets import NAMESPACE, World, a_world, of_unknown_type, pem


async def test_key_is_stored_before_it_is_registered() -> None:
    world = a_world()

    key = await world.manager().ensure("f")

    assert world.provider.stored == [True]
    stored = world.find("f-ssh")
    assert stored.data[secrets.SSH_PRIVATE_KEY].decode() == key.private.reveal()
    assert stored.data[secrets.SSH_PUBLIC_KEY].decode() == f"{key.public}\n"
    assert stored.metadata.annotations[annotation_names.SSH_KEY_ID] == "id-1"
    assert key.public.startswith("ssh-ed25519 ")
    assert key.public.endswith(" f")


async def test_key_that_was_not_registered_is_registered_by_the_next_call() -> None:
    world = a_world()
    world.api.failures["patch"] = [errors.ApiUnavailable("away")]
    with pytest.raises(errors.ApiUnavailable):
        await world.manager().ensure("f")
    before = world.find("f-ssh").data

    await world.manager().ensure("f")

    assert world.find("f-ssh").data == before
    assert world.find("f-ssh").metadata.annotations[annotation_names.SSH_KEY_ID] == "id-1"


async def test_managers_that_race_use_the_same_key() -> None:
    world = a_world()

    found = await asyncio.gather(*(world.manager().ensure("f") for _ in range(3)))

    assert world.api.calls.count("create") == 3
    assert len({key.public for key in found}) == 1
    assert len({key.private.reveal() for key in found}) == 1
    [registered] = world.provider.keys.values()
    assert registered.startswith(found[0].public.rpartition(" ")[0])


async def test_machines_of_a_fleet_register_its_key_once() -> None:
    world = a_world()
    manager = world.manager()

    await asyncio.gather(*(manager.ensure(fleet) for fleet in ("f", "f", "", "default", "f")))

    assert world.provider.calls == 2
    assert sorted(world.provider.keys) == ["default", "f"]


async def test_key_that_the_provider_lost_is_registered_again_within_an_hour() -> None:
    world = a_world()
    manager = world.manager()
    first = await manager.ensure("f")
    world.provider.keys.clear()
    await asyncio.sleep(3590)
    await manager.ensure("f")
    assert (world.provider.calls, world.provider.keys) == (1, {})
    await asyncio.sleep(20)

    again = await manager.ensure("f")

    assert again.public == first.public
    assert "f" in world.provider.keys
    assert world.find("f-ssh").metadata.annotations[annotation_names.SSH_KEY_ID] == "id-2"


async def test_key_that_was_registered_is_used_while_the_provider_cannot_be_asked() -> None:
    world = a_world()
    first = await world.manager().ensure("f")
    manager = world.manager()
    world.provider.failures = [errors.ProviderUnavailable("away")] * 2

    assert await manager.ensure("f") == first
    assert await manager.ensure("f") == first
    assert world.provider.calls == 2
    await asyncio.sleep(31)
    await manager.ensure("f")
    await asyncio.sleep(31)
    await manager.ensure("f")

    assert world.provider.calls == 4
    assert world.provider.failures == []


async def test_machines_of_a_fleet_share_a_failed_registration() -> None:
    world = a_world()
    world.secret("f-ssh", id_ed25519=pem())
    manager = world.manager()
    world.provider.failures = [errors.Forbidden("insufficient permissions: list ssh_key")]

    found = await asyncio.gather(*(manager.ensure("f") for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in found] == [errors.Forbidden] * 3
    assert world.provider.calls == 1
    assert (await manager.find("f")).public.endswith(" f")
    await asyncio.sleep(31)

    assert await manager.ensure("f") == await manager.find("f")


async def test_key_of_the_existing_provider_is_kept() -> None:
    world = a_world()
    private = pem()
    world.secret("f-ssh", id_ed25519=private)

    key = await world.manager().ensure("f")

    assert key.private.reveal() == private.decode()
    assert world.find("f-ssh").data == {secrets.SSH_PRIVATE_KEY: private}


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"very secret and no key",
        pem()[:120],
        pem(generate_private_key(65537, 2048)),
        of_unknown_type(),
        b"\xff\xfe secret",
    ],
)
async def test_damaged_secret_is_named_and_not_shown(damaged: bytes) -> None:
    world = a_world()
    world.secret("f-ssh", id_ed25519=damaged)

    with pytest.raises(errors.InvalidSpec) as raised:
        await world.manager().ensure("f")

    assert str(raised.value).startswith("key id_ed25519 of Secret ns/f-ssh is not ")
    assert "secret" not in str(raised.value)
    assert world.provider.calls == 0


async def test_former_leader_registers_nothing() -> None:
    world = a_world()
    world.secret("f-ssh", id_ed25519=pem())
    world.is_leader = False

    with pytest.raises(errors.LeaseLost):
        await world.manager().ensure("f")

    assert world.provider.calls == 0


def test_private_key_is_not_shown() -> None:
    key = FleetKey(Hidden("private part"), "ssh-ed25519 AAAA f")

    assert "private part" not in repr(key)
    assert key.material == b"private part"


def rented(world: World) -> RentedLogins:
    return RentedLogins(world.manager(), BootstrapSecrets(world.api, world.kube, NAMESPACE))


def owned(world: World) -> OwnedLogins:
    return OwnedLogins(world.api, SharedSecrets(world.api, virtual_time.clock()))


def an_owned_mac() -> Mac:
    mac = a_mac(credentials_secret_name="mine")
    return replaced(mac, holder=replaced(mac.holder, namespace=NAMESPACE))


async def test_rented_mac_has_the_key_of_its_fleet_and_the_password_of_the_provider() -> None:
    world = a_world()
    world.secret("m-bootstrap", sudo_password=b"pass\n", host_fingerprint=b"SHA256:abc")

    found = await rented(world).of(a_mac())

    key = await world.manager().ensure("f")
    login = found.login
    assert (login.name, login.address, login.port, login.user) == ("m", "192.0.2.1", 22, "m1")
    assert [each.reveal() for each in login.private_keys] == [key.private.reveal()]
    assert login.password is not None
    assert login.password.reveal() == "pass"
    assert found.public_keys == (key.public,)
    assert login.host_key.text == "SHA256:abc"
    assert "pass" not in repr(found).replace("password", "")
    assert await rented(world).hash_key(a_mac()) == key.material


async def test_placeholder_of_a_password_is_not_used() -> None:
    world = a_world()
    world.secret("m-bootstrap", sudo_password=b"<sealed>")

    assert (await rented(world).of(a_mac())).login.password is None


async def test_missing_secret_of_a_rented_mac_is_named() -> None:
    with pytest.raises(errors.NotFound, match="the Secret m-bootstrap is missing"):
        await rented(a_world()).of(a_mac())


async def test_owned_mac_has_the_login_of_its_secret() -> None:
    world, private = a_world(), pem()
    world.secret("mine", sudo_password=b"pass", id_ed25519=private)

    found = await owned(world).of(an_owned_mac())

    assert [each.reveal() for each in found.login.private_keys] == [private.decode()]
    assert len(found.public_keys) == 1
    assert found.public_keys[0].endswith(" m")
    assert await owned(world).hash_key(an_owned_mac()) == b"pass"


async def test_password_alone_and_key_alone_are_enough() -> None:
    world, private = a_world(), pem()
    world.secret("mine", sudo_password=b"pass")
    by_password = await owned(world).of(an_owned_mac())
    assert (by_password.login.private_keys, by_password.public_keys) == ((), ())

    world.secret("mine", id_ed25519=private)
    by_key = await owned(world).of(an_owned_mac())
    assert by_key.login.password is None
    assert await owned(world).hash_key(an_owned_mac()) == private


@pytest.mark.parametrize("data", [{}, {"sudo_password": b""}, {"sudo_password": b" \n"}])
async def test_secret_without_a_login_says_what_is_missing(data: dict[str, bytes]) -> None:
    world = a_world()
    world.secret("mine", **data)

    with pytest.raises(errors.InvalidSpec) as raised:
        await owned(world).of(an_owned_mac())

    assert str(raised.value) == (
        "spec.credentialsSecretName: Secret ns/mine has no sudo-password and no id_ed25519; "
        "store the password of the Mac's user in it, as sudo-password"
    )


async def test_missing_secret_of_an_owned_mac_is_named() -> None:
    logins = owned(a_world())

    for read in (logins.of, logins.hash_key):
        with pytest.raises(errors.NotFound, match="Secret ns/mine does not exist"):
            await read(an_owned_mac())


async def test_damaged_key_of_an_owned_mac_is_named() -> None:
    world = a_world()
    world.secret("mine", sudo_password=b"pass", id_ed25519=b"no key")

    with pytest.raises(errors.InvalidSpec, match="key id_ed25519 of Secret ns/mine is not"):
        await owned(world).of(an_owned_mac())


async def test_shared_secrets_are_read_once_in_five_minutes() -> None:
    world = a_world()
    shared = SharedSecrets(world.api, virtual_time.clock())
    world.secret("logins", token=b"one")

    async def value(*, is_fresh: bool = False) -> str:
        return (await shared.value(NAMESPACE, "logins", "token", is_fresh=is_fresh)).reveal()

    assert await value() == "one"
    world.secret("logins", token=b"two")
    await asyncio.sleep(timedelta(minutes=5).total_seconds() - 10)
    assert await value() == "one"
    assert await value(is_fresh=True) == "two"
    world.secret("logins", token=b"three")
    assert await value() == "two"
    await asyncio.sleep(timedelta(minutes=5).total_seconds())
    assert await value() == "three"
    assert world.api.calls == ["get"] * 3


async def test_missing_secret_or_value_is_named() -> None:
    world = a_world()
    shared = SharedSecrets(world.api, virtual_time.clock())
    with pytest.raises(errors.NotFound, match="Secret ns/logins does not exist"):
        await shared.value(NAMESPACE, "logins", "token")
    world.secret("logins", other=b"x")

    with pytest.raises(errors.NotFound, match="Secret ns/logins has no value token"):
        await shared.value(NAMESPACE, "logins", "token")


FIRST, SECOND = HostKey("ssh-ed25519", "SHA256:first"), HostKey("ssh-ed25519", "SHA256:second")


async def test_first_host_key_is_pinned() -> None:
    world = a_world()
    world.secret("m-bootstrap", sudo_password=b"pass")
    used = await rented(world).of(a_mac())
    await store_host_key(world.kube, used)
    assert secrets.HOST_FINGERPRINT not in world.find("m-bootstrap").data

    used.login.host_key.add("192.0.2.1", 22, FIRST)
    await store_host_key(world.kube, used)

    stored = world.find("m-bootstrap")
    assert stored.data[secrets.HOST_FINGERPRINT] == b"ssh-ed25519 SHA256:first"
    assert stored.data[secrets.SUDO_PASSWORD] == b"pass"
    again = await rented(world).of(a_mac())
    assert (again.login.host_key.text, again.has_new_host_key) == (str(FIRST), False)


async def test_pin_of_a_secret_that_was_replaced_is_not_changed() -> None:
    """The Secret of another machine of the same name, or of a Mac that is gone."""
    world = a_world()
    world.secret("m-bootstrap", sudo_password=b"pass")
    used = await rented(world).of(a_mac())
    used.login.host_key.add("192.0.2.1", 22, SECOND)
    world.api.remove(Secret, Key(NAMESPACE, "m-bootstrap"))
    await store_host_key(world.kube, used)
    other = world.secret("m-bootstrap", sudo_password=b"other")

    await store_host_key(world.kube, used)

    assert world.find("m-bootstrap") == other


async def test_secret_that_was_changed_meanwhile_gets_its_pin() -> None:
    world = a_world()
    stored = world.secret("m-bootstrap", sudo_password=b"pass")
    used = await rented(world).of(a_mac())
    used.login.host_key.add("192.0.2.1", 22, FIRST)
    world.api.put(replace(stored, data={secrets.SUDO_PASSWORD: b"new"}))

    await store_host_key(world.kube, used)

    data = world.find("m-bootstrap").data
    assert data[secrets.SUDO_PASSWORD] == b"new"
    assert data[secrets.HOST_FINGERPRINT] == b"ssh-ed25519 SHA256:first"
