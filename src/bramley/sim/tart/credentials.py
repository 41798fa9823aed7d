"""Credentials for registries, looked for where tart looks: environment, Docker's file, keychain. And `login`, `logout`."""

import json
import os
from base64 import b64decode

from bramley.sim.tart.arguments import Arguments
from bramley.sim.tart.effects import Out, ReadStdin, Sleep, Steps
from bramley.sim.tart.failures import Failed, WrongUsage
from bramley.sim.tart.world import World


def find(world: World, host: str) -> str | None:
    """Return `user:password` for a registry, or None."""
    return _of_environment(world, host) or _of_docker(world, host) or _keychain(world).get(host)


def _of_environment(world: World, host: str) -> str | None:
    given = world.around.environment
    user, password = given.get("TART_REGISTRY_USERNAME"), given.get("TART_REGISTRY_PASSWORD")
    if user is None or password is None or given.get("TART_REGISTRY_HOSTNAME", host) != host:
        return None
    return f"{user}:{password}"


def _of_docker(world: World, host: str) -> str | None:
    path = os.path.join(world.around.environment.get("HOME", ""), ".docker", "config.json")
    try:
        with open(path, encoding="utf-8") as file:
            inline = json.load(file).get("auths", {}).get(host, {}).get("auth", "")
    except (OSError, ValueError):
        return None
    pair = b64decode(inline).decode()
    # The real decoder wants exactly two parts: a password with a colon counts as none.
    return pair if pair.count(":") == 1 else None


def _keychain_file(world: World) -> str:
    return os.path.join(world.hidden, "keychain.json")


def _keychain(world: World) -> dict[str, str]:
    try:
        with open(_keychain_file(world), encoding="utf-8") as file:
            kept: dict[str, str] = json.load(file)
    except FileNotFoundError:
        return {}
    return kept


def _keep(world: World, items: dict[str, str]) -> None:
    if not world.settings.host["has_session"]:
        raise Failed(
            1,
            "Keychain returned unsuccessful status -25308: User interaction is not allowed.",
        )
    os.makedirs(world.hidden, exist_ok=True)
    descriptor = os.open(_keychain_file(world), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(items, file)


def login(arguments: Arguments, world: World) -> Steps:
    """Keep credentials in the keychain, which needs a session."""
    user = arguments.find("username")
    if (user is None) == arguments.has("password-stdin"):
        raise WrongUsage("either both or none of --username and --password-stdin must be provided")
    if user is None:
        raise Failed(1, "Error: there is no terminal to ask for a password")
    password: bytes = yield ReadStdin()
    yield Sleep(world.settings.seconds("manifest"))
    pair = f"{user}:{password.decode().strip()}"
    _keep(world, {**_keychain(world), arguments["host"]: pair})
    return 0


def logout(arguments: Arguments, world: World) -> Steps:
    """Forget credentials; none to forget is no error."""
    items = _keychain(world)
    if items.pop(arguments["host"], None) is not None:
        _keep(world, items)
    else:
        yield Out(f"no credentials for {arguments['host']} to remove")
    return 0
