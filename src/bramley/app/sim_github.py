"""The process of `bramley sim github`: a simulated GitHub behind an HTTP server, with one App."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from yarl import URL

from bramley.apiserver.pki import private_files
from bramley.app.listen_address import Address, bind, bound_address
from bramley.base.clock import SystemClock
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.github import app_keys
from bramley.github.http import HttpTransport, checked_url
from bramley.github.owners import Repository
from bramley.kube.in_process import Application
from bramley.sim.github import github as simulated
from bramley.sim.github.application import application
from bramley.sim.github.github import SimulatedGitHub
from bramley.sim.github.webhooks import Hook

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

_KEY_BITS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Address, App and repositories of a simulated GitHub, and where its webhooks are sent."""

    listen: Address
    private_key_file: Path
    app_id: str = "1"
    repositories: tuple[str, ...] = ("acme/app",)
    webhook_url: str = ""
    webhook_secret_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """How to use a running simulated GitHub."""

    url: str
    settings: Settings
    # By the organisation.
    installations: dict[str, int]


def run(settings: Settings, on_serving: Callable[[Served], None]) -> None:
    """Serve until a signal arrives; `on_serving` is called once clients can connect."""
    asyncio.run(_serve(settings, on_serving))


async def _serve(settings: Settings, on_serving: Callable[[Served], None]) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    key = public_key(settings.private_key_file)
    async with AsyncExitStack() as stack:
        hook = await _hook(settings, stack)
        bound = bind(settings.listen)
        stack.callback(bound.close)
        url = f"http://{bound_address(settings.listen, bound)}"
        github = SimulatedGitHub(
            key,
            clock=SystemClock(),
            hook=hook,
            settings=simulated.Settings(
                app_id=settings.app_id, seed=secrets.randbits(64), base_url=url
            ),
        )
        installations = add_repositories(github, settings.repositories)
        await stack.enter_async_context(github.running())
        await stack.enter_async_context(serving(application(github), bound))
        on_serving(Served(url, settings, installations))
        await stop.wait()


@asynccontextmanager
async def serving(served: Application, bound: socket.socket) -> AsyncIterator[None]:
    """Serve an application over HTTP on a socket while the context lasts."""
    # uvicorn writes head and body separately; connections inherit this, so the body does not wait for an acknowledgement.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    config = uvicorn.Config(
        served,
        loop="none",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        # The application sends the date of the simulated clock.
        date_header=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[bound])
    try:
        yield
    finally:
        await server.shutdown(sockets=[bound])


def public_key(file: Path) -> RSAPublicKey:
    """Return the public key of the private key in a file, which is created if it does not exist."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    if not file.exists():
        created = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
        pem = created.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        private_files.write(file, pem)
    try:
        return app_keys.load(file.read_bytes(), str(file)).public_key()
    except OSError as error:
        raise BadConfiguration(f"{file} cannot be read: {error.strerror}") from error


def add_repositories(github: SimulatedGitHub, repositories: Iterable[str]) -> dict[str, int]:
    """Add repositories and their organisations; return the installation of each organisation."""
    for each in map(_repository, repositories):
        if each.owner.lower() not in github.accounts:
            github.add_account(each.owner)
        github.add_repository(each.owner, each.name)
    return {each.login: each.installation_id for each in github.accounts.values()}


def _repository(text: str) -> Repository:
    owner, slash, name = text.partition("/")
    if not slash:
        raise BadConfiguration(f"--repository {text!r} is not OWNER/NAME; write it like acme/app")
    return Repository(owner, name)


async def _hook(settings: Settings, stack: AsyncExitStack) -> Hook | None:
    if not settings.webhook_url:
        return None
    if settings.webhook_secret_file is None:
        raise BadConfiguration("--webhook-url needs --webhook-secret-file")
    try:
        secret = Secret(settings.webhook_secret_file.read_text().strip())
    except (OSError, UnicodeDecodeError):
        raise BadConfiguration(f"{settings.webhook_secret_file} cannot be read") from None
    if not secret:
        raise BadConfiguration(f"{settings.webhook_secret_file} is empty")
    url = _webhook_url(settings.webhook_url)
    transport = await stack.enter_async_context(HttpTransport(str(url.origin())))
    return Hook(transport, url.raw_path, secret)


def _webhook_url(text: str) -> URL:
    try:
        url = URL(text)
        checked_url(str(url.origin()))
    except (ValueError, BadConfiguration):
        url = URL()
    if not url.absolute or url.query_string:
        raise BadConfiguration(
            "--webhook-url must begin with https://, or with http:// and a loopback address, and have no query; "
            "write it like http://127.0.0.1:8080/webhooks/github"
        )
    return url
