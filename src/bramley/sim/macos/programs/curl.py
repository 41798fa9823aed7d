"""curl of a Mac in process: reaches what listens on the Mac itself, since there is no network, and has one download.

The agent and node_exporter respond while launchd has a process for their jobs.
"""

from __future__ import annotations

import getopt
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from bramley.api.names import flags, host
from bramley.api.names import launchd as jobs
from bramley.sim.macos import launchd
from bramley.sim.macos.call import Call, Result, may_replace, not_modelled
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import homebrew, tailscale

_LETTERS = "fsSkLm:o:w:"
# What a Mac may download: the installer that the model's bash can run.
_DOWNLOADS = {host.HOMEBREW_INSTALLER_URL: homebrew.INSTALLER}
_LONG = ("fail", "silent", "show-error", "insecure", "max-time=", "connect-timeout=", "output=", "write-out=")  # fmt: skip
_NO_HOST, _NO_CONNECTION, _REFUSED = 6, 7, 22
_OWN = {"127.0.0.1", "localhost", "[::1]", "0.0.0.0"}


def curl(mac: Mac, call: Call) -> Result:
    """Get one URL."""
    try:
        parsed, urls = getopt.gnu_getopt(list(call.argv[1:]), _LETTERS, _LONG)
    except getopt.GetoptError as error:
        return not_modelled(call, str(error))
    options = {name.lstrip("-"): value for name, value in parsed}
    output = options.get("o") or options.get("output", "/dev/null")
    if len(urls) == 1 and urls[0] in _DOWNLOADS and may_replace(mac, call, output):
        mac.files.write(output, _DOWNLOADS[urls[0]])
        return Result()
    if len(urls) != 1 or output != "/dev/null":
        return not_modelled(call)
    return _get(mac, urls[0], options)


def _get(mac: Mac, url: str, options: Mapping[str, str]) -> Result:
    parsed = urlsplit(url)
    name, port = parsed.hostname or "", parsed.port or (443 if parsed.scheme == "https" else 80)
    tailnet_state = tailscale.login_state(mac)
    addresses = (*_OWN, tailscale.address(tailnet_state) if tailnet_state else "")
    if name not in addresses:
        return _failed(options, _NO_HOST, f"Could not resolve host: {name}")
    paths = next(
        (paths for host, at, paths in _listeners(mac) if at == port and host in {"", name}), None
    )
    if paths is None or parsed.scheme != "http":
        message = f"Failed to connect to {name} port {port} after 0 ms: Couldn't connect to server"
        return _failed(options, _NO_CONNECTION, message)
    body = paths.get(parsed.path or "/")
    status = 404 if body is None else 200
    if body is None and {"f", "fail"} & set(options):
        return _failed(options, _REFUSED, f"The requested URL returned error: {status}")
    is_discarded = bool({"o", "output"} & set(options))
    template = options.get("w") or options.get("write-out", "")
    written = template.replace("%{http_code}", str(status)).replace("\\n", "\n")
    return Result(out=("" if is_discarded else body or "404 page not found\n") + written)


def _failed(options: Mapping[str, str], code: int, text: str) -> Result:
    is_shown = not {"s", "silent"} & set(options) or bool({"S", "show-error"} & set(options))
    return Result(code, err=f"curl: ({code}) {text}\n" if is_shown else "")


def _listeners(mac: Mac) -> Iterator[tuple[str, int, Mapping[str, str]]]:
    """Yield the host, port and paths of each listener; an empty host is all addresses of the Mac."""
    state = mac.state
    if launchd.pid_of(state, jobs.AGENT) is not None:
        yield ("", _health_port(state), {"/healthz": "ok", "/readyz": "ok"})
    tailnet_state = tailscale.login_state(mac)
    if tailnet_state and launchd.pid_of(state, jobs.NODE_EXPORTER) is not None:
        metrics = {"/metrics": "# TYPE node_uname_info gauge\nnode_uname_info 1\n"}
        yield (tailscale.address(tailnet_state), host.NODE_EXPORTER_PORT, metrics)


def _health_port(state: Mapping[str, Any]) -> int:
    """Return the port of the agent's health probes, from its job's arguments or its default."""
    job = launchd.find(state, f"{launchd.SYSTEM}/{jobs.AGENT}")
    flag = flags.HEALTH_PROBE_BIND_ADDRESS
    text = [
        word.partition("=")[2]
        for word in (job or {}).get("arguments", [])
        if word.startswith(f"{flag.name}=")
    ]
    return int((text or [flag.default])[-1].rpartition(":")[2])
