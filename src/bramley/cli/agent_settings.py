"""Settings of the agent from the flags of `tart-kubelet`; errors name the flag or variable."""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import socket
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from bramley.agent import settings as agent
from bramley.agent.settings import Endpoint, Folders, NodeSettings, Serving, Settings
from bramley.api import taints
from bramley.api.core import Taint
from bramley.api.names import flags
from bramley.api.names.flags import Flag
from bramley.base.errors import BadConfiguration
from bramley.cli.agent_flags import FlagValues

DISABLED = "0"
# The checks of the API server, made here to report the flag before anything starts.
_DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_MAX_NAME_LENGTH = 253
_MAX_BOOT_SECONDS = 86_400


def settings(values: FlagValues, environment: Mapping[str, str]) -> Settings:
    """Return the settings for the values of the flags."""
    values.choice(flags.AGENT_LOG_LEVEL, "debug", "info", "warning", "error")
    values.choice(flags.AGENT_LOG_FORMAT, "auto", "readable", "json")
    return Settings(
        node=_node(values),
        address_source=values.choice(flags.NODE_IP_SOURCE, agent.AUTO, agent.TAILSCALE),
        folders=_folders(values, environment),
        tart_binary=values.text(flags.TART_BINARY),
        gui_session_uid=os.getuid() if _checks_session(values, environment) else None,
        gc_enabled=not values.is_on(flags.DISABLE_VM_GC),
        vm_boot_timeout=_boot_timeout(values),
        metrics=_endpoint(values, flags.METRICS_BIND_ADDRESS),
        health=_endpoint(values, flags.HEALTH_PROBE_BIND_ADDRESS),
        serving=_serving(values),
        registry_credentials=_file(values, flags.REGISTRY_CREDENTIALS_FILE),
        stage_megabytes_per_second=values.positive_number(flags.STAGE_MEGABYTES_PER_SECOND),
        scrape_allowed=_networks(values),
    )


def _node(values: FlagValues) -> NodeSettings:
    # The host name of macOS may contain capitals, which a Node name may not.
    name = values.text(flags.NODE_NAME) or socket.gethostname().lower()
    if len(name) > _MAX_NAME_LENGTH or not _DNS_NAME.fullmatch(name):
        raise BadConfiguration(
            f"{values.source_name(flags.NODE_NAME)} {name!r} is not a valid Node name; use lower-case letters, digits, - and ."
        )
    return NodeSettings(
        name=name,
        provider_id=values.text(flags.PROVIDER_ID),
        address=_address(values),
        labels=_labels(values),
        register_taints=_taints(values),
        cpu=values.number(flags.HOST_CPU) or agent.HOST_CPU,
        memory_mb=values.number(flags.HOST_MEMORY_MB) or agent.HOST_MEMORY_MB,
        max_pods=values.number(flags.MAX_PODS) or agent.MAX_PODS,
    )


def _address(values: FlagValues) -> str:
    text = values.text(flags.NODE_IP)
    try:
        return str(ipaddress.ip_address(text)) if text else ""
    except ValueError as error:
        raise BadConfiguration(
            f"{values.source_name(flags.NODE_IP)} {text!r} is not an IP address"
        ) from error


def _boot_timeout(values: FlagValues) -> timedelta:
    seconds = values.number(flags.VM_BOOT_TIMEOUT, least=1)
    if seconds > _MAX_BOOT_SECONDS:
        name = values.source_name(flags.VM_BOOT_TIMEOUT)
        raise BadConfiguration(f"{name} {seconds} is more than a day, {_MAX_BOOT_SECONDS} seconds")
    return timedelta(seconds=seconds)


def _labels(values: FlagValues) -> dict[str, str]:
    labels = values.key_values(flags.NODE_LABELS)
    for key, value in labels.items():
        if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            raise BadConfiguration(
                f"{values.source_name(flags.NODE_LABELS)}: {key}={value} is not a valid label"
            )
    return labels


def _taints(values: FlagValues) -> tuple[Taint, ...]:
    text = values.text(flags.REGISTER_TAINTS)
    try:
        return taints.parse(part.strip() for part in text.split(",")) if text.strip() else ()
    except ValueError as error:
        raise BadConfiguration(f"{values.source_name(flags.REGISTER_TAINTS)}: {error}") from error


def _folders(values: FlagValues, environment: Mapping[str, str]) -> Folders:
    home = Path(environment.get("HOME", "/"))
    tart = values.text(flags.TART_HOME)
    return Folders(
        state=Path(values.text(flags.STATE_DIR)).absolute(),
        user_data=Path(values.text(flags.USERDATA_DIR)).absolute(),
        vm_logs=Path(values.text(flags.VM_LOG_DIR)).absolute(),
        tart_home=Path(tart).absolute() if tart else home / ".tart",
        dhcp_leases=Path(values.text(flags.DHCP_LEASES_FILE)).absolute(),
    )


def _checks_session(values: FlagValues, environment: Mapping[str, str]) -> bool:
    choice = values.choice(flags.GUI_PREFLIGHT, "auto", "on", "off")
    if choice == "auto":
        return shutil.which("launchctl", path=environment.get("PATH", "")) is not None
    return choice == "on"


def _endpoint(values: FlagValues, flag: Flag) -> Endpoint | None:
    text = values.text(flag)
    if text in {DISABLED, ""}:
        return None
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_number = port.isascii() and port.isdigit() and int(port) <= 65535
    if not (colon and is_number and (bare != host or ":" not in host)):
        raise BadConfiguration(
            f"{values.source_name(flag)} {text!r} is not host:port; write it like 127.0.0.1:8080, :8080, or 0 to disable it"
        )
    return Endpoint(bare, int(port), is_default=values.is_default(flag))


def _serving(values: FlagValues) -> Serving | None:
    endpoint = _endpoint(values, flags.KUBELET_BIND_ADDRESS)
    certificate, key = _file(values, flags.TLS_CERT_FILE), _file(values, flags.TLS_KEY_FILE)
    if (certificate is None) != (key is None):
        raise BadConfiguration(
            f"{flags.TLS_CERT_FILE.name} and {flags.TLS_KEY_FILE.name} belong together; set both or neither"
        )
    authority = _file(values, flags.CLIENT_CA_FILE)
    return Serving(endpoint, certificate, key, authority) if endpoint else None


def _file(values: FlagValues, flag: Flag) -> Path | None:
    text = values.text(flag)
    if not text:
        return None
    if not os.access(text, os.R_OK):
        raise BadConfiguration(
            f"{values.source_name(flag)} {text!r} cannot be read; use a readable file"
        )
    return Path(text).absolute()


def _networks(values: FlagValues) -> tuple[str, ...]:
    flag = flags.SCRAPE_ALLOWED_CIDR
    networks = []
    for text in values.repeated[flag.name]:
        try:
            networks.append(str(ipaddress.ip_network(text, strict=False)))
        except ValueError as error:
            raise BadConfiguration(
                f"{values.source_name(flag)} {text!r} is not a network; write it like 10.0.0.0/8"
            ) from error
    return tuple(networks)
