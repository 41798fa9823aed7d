"""config.sh of a runner on a Mac behind SSH whose settings name a simulated GitHub: it is registered there, over HTTP.

All else is that of the model, which waits for nothing.
"""

from __future__ import annotations

import json
from datetime import timedelta

from bramley.base import errors
from bramley.github.http import HttpTransport
from bramley.kube.transport import Request, Response
from bramley.sim.macos.call import Call, Exit, NotModelled, Result, not_modelled
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import actions_runner
from bramley.sim.macos.programs.actions_runner import Registered

PROGRAM = "config.sh"
_TIMEOUT = timedelta(seconds=60)
_PATH = "/sim/registrations"
# What a runner on a Mac adds to its labels.
_LABELS = ("self-hosted", "macOS", "ARM64")
_NOT_FOUND = """\
Http response code: NotFound from 'POST {url}/actions/runner-registration'
{{"message":"Not Found","documentation_url":"https://docs.github.com/rest","status":"404"}}
Response status code does not indicate success: 404 (Not Found).
"""


def github_url(mac: Mac) -> str:
    """Return the URL of the simulated GitHub at which runners are registered; empty if there is none."""
    return str(mac.state["settings"].get("github_url", ""))


async def config_sh(mac: Mac, call: Call) -> Result:
    """Print the version, or register a runner at GitHub and below its folder."""
    if "--version" in call.argv:
        return mac.run(call)
    try:
        options = actions_runner.options(mac, call)
        registered = await _registered(github_url(mac), options)
    except Exit as exited:
        return exited.result
    except NotModelled as error:
        return not_modelled(call, str(error))
    return actions_runner.record(mac, call, options, registered)


async def _registered(url: str, options: dict[str, str]) -> Registered:
    """Return the registration at GitHub; Exit if it is refused."""
    response = await _response(url, options)
    if response.status == 404:
        raise Exit(Result(1, err=_NOT_FOUND.format(url=url)))
    if response.status != 200:
        message = json.loads(response.body).get("message", "")
        raise Exit(Result(1, err=f"An error occurred: {message}\n"))
    body = json.loads(response.body)
    return Registered(body["id"], url, body["encoded_jit_config"])


async def _response(url: str, options: dict[str, str]) -> Response:
    given = filter(None, options.get("labels", "").split(","))
    # As GitHub does, without regard to case.
    labels = {label.lower(): label for label in (*_LABELS, *given)}
    body = {
        "token": options["token"],
        "url": options["url"],
        "name": options.get("name", "mac"),
        "labels": list(labels.values()),
        "group": options.get("runnergroup") or "Default",
        "replace": "replace" in options,
    }
    request = Request("POST", _PATH, body=json.dumps(body).encode(), deadline=_TIMEOUT)
    try:
        async with HttpTransport(url) as transport:
            return await transport.send(request)
    except errors.Unavailable as error:
        raise Exit(Result(1, err=f"An error occurred: {error}\n")) from None
