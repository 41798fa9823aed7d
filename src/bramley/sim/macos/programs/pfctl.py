"""pfctl: checks, loads and shows the rules of pf.

The state has the main ruleset, each loaded anchor, their tables, and the tokens of those who enabled pf. A load replaces the rulesets
that it names, all of them or none; anchors of earlier loads stay. Packets are not modelled.
"""

from __future__ import annotations

import getopt
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bramley.sim.macos.call import Call, Result, not_modelled, read_file
from bramley.sim.macos.programs import pf_file

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac


_MISSING = Result(255, err="pfctl: Table does not exist.\n")
CONFIGURATION = "/etc/pf.conf"
_LETTERS = "a:AdD:eEf:F:ghi:k:K:lmnNOo:Pp:qrRs:St:T:vx:X:z"
_MODELLED = set("adeEfFnstTvX")
_ALTQ = "No ALTQ support in kernel\nALTQ related functions disabled\n"
_FLUSHING = (
    "pfctl: Use of -f option, could result in flushing of rules\n"
    "present in the main ruleset added by the system at startup.\n"
    "See /etc/pf.conf for further details.\n\n"
)
_USAGE = "usage: pfctl [-AdeghnNOPqRrvz] [-a anchor] [-F modifier] [-f file] [-s modifier] [-t table -T command] [-X token]\n"
# Names of parts may be abbreviated.
_PARTS = (
    "nat", "queue", "rules", "Anchors", "Sources", "states", "info", "Interfaces", "labels", "timeouts", "memory", "Tables",
    "osfp", "all", "References", "dummynet",
)  # fmt: skip
_NOT_ENABLED = "pfctl: pf not enabled\n"
_FIRST_TOKEN = 15_053_025_338_191_571_000
_EMPTY: Mapping[str, Any] = pf_file.Ruleset().as_json()


Options = dict[str, str]


def pfctl(mac: Mac, call: Call) -> Result:
    """Perform the options in the order of the real program."""
    try:
        given, rest = getopt.getopt(list(call.argv[1:]), _LETTERS)
    except getopt.GetoptError as error:
        return Result(1, err=f"pfctl: illegal option -- {error.opt}\n{_USAGE}")
    options = {letter[1]: value for letter, value in given}
    is_verbose = "v" in options and "f" not in options
    if rest or not options or set(options) - _MODELLED or is_verbose:
        return not_modelled(call)
    if "n" not in options and not call.is_root:
        return Result(1, err="pfctl: /dev/pf: Permission denied\n")
    return _combine(_results(mac, call, options))


def on_boot(mac: Mac, state: dict[str, Any]) -> None:
    """Start with pf disabled and with the rules of its file, if that is valid."""
    load = pf_file.Load(lambda path: _read(mac, Call(("pfctl",), "root"), path))
    loaded = load.rulesets if load.file(CONFIGURATION) else {}
    state["pf"] = {
        "enabled": False,
        "tokens_id": [],
        "rulesets": {name: ruleset.as_json() for name, ruleset in loaded.items()},
    }


def _results(mac: Mac, call: Call, options: Options) -> Iterator[Result]:
    """Perform one option after the other and yield their results; the caller stops at the first failure."""
    yield Result(err=_ALTQ if "n" not in options else "")
    anchor = options.get("a", "").strip("/")
    if "d" in options:
        yield _disable(mac)
    if "X" in options:
        yield _release(mac, options["X"])
    if "s" in options:
        yield _show(mac, call, options, anchor)
    if "F" in options:
        yield _flush(mac, call, options["F"], anchor)
    if "T" in options or "t" in options:
        yield _show_table(mac, call, options, anchor)
    if "f" in options:
        yield _load(mac, call, options, anchor)
    if "e" in options or "E" in options:
        yield _enable(mac, with_token="E" in options)


def _combine(results: Iterator[Result]) -> Result:
    out, err = "", ""
    for result in results:
        out, err = out + result.out, err + result.err
        if result.code:
            return Result(result.code, out, err)
    return Result(0, out, err)


def _read(mac: Mac, call: Call, path: str) -> str | None:
    try:
        content = read_file(mac, call, path)
    except PermissionError:
        return None
    return None if content is None else content.decode("utf-8", "replace")


def _load(mac: Mac, call: Call, options: Options, anchor: str) -> Result:
    path = options["f"]
    text = call.stdin.decode("utf-8", "replace") if path == "-" else None
    load = pf_file.Load(lambda name: _read(mac, call, name))
    is_good = load.file("stdin" if text is not None else path, anchor=anchor, text=text)
    # pfctl prints this for every -f, also for an anchor and for a check with -n.
    err = _FLUSHING + "".join(f"{line}\n" for line in load.errors)
    if not is_good:
        return Result(1, err=err)
    if "n" not in options:
        with mac.change() as state:
            for name, ruleset in load.rulesets.items():
                state["pf"]["rulesets"][name] = ruleset.as_json()
    shown = load.ruleset(anchor)
    lines = [*shown.rules, *shown.nat] if "v" in options else []
    return Result(out="".join(f"{line}\n" for line in lines), err=err)


def _enable(mac: Mac, *, with_token: bool) -> Result:
    with mac.change() as state:
        pf = state["pf"]
        if pf["enabled"] and not with_token:
            return Result(1, err="pfctl: pf already enabled\n")
        if not pf["enabled"]:
            pf.update(enabled=True, enabled_at=mac.now())
        if not with_token:
            return Result(err="pf enabled\n")
        token = pf["last_token_id"] = pf.get("last_token_id", _FIRST_TOKEN) + 1
        pf["tokens_id"].insert(0, [token, mac.now()])
        return Result(err=f"pf enabled\nToken : {token}\n")


def _disable(mac: Mac) -> Result:
    with mac.change() as state:
        if not state["pf"]["enabled"]:
            return Result(1, err=_NOT_ENABLED)
        state["pf"].update(enabled=False, tokens_id=[])
    return Result(err="pf disabled\n")


def _release(mac: Mac, token: str) -> Result:
    with mac.change() as state:
        pf = state["pf"]
        left = [held for held in pf["tokens_id"] if str(held[0]) != token]
        if not pf["enabled"]:
            return Result(1, err=_NOT_ENABLED)
        if len(left) == len(pf["tokens_id"]):
            return Result(1, err="pfctl: pf: token invalid\n")
        pf.update(enabled=bool(left), tokens_id=left)
    if not left:
        return Result(err="pf disabled\n")
    message = f"{len(left)} more pf enable reference(s) remaining, pf still enabled."
    return Result(err=f"disable request successful. {message}\n")


def _flush(mac: Mac, call: Call, part: str, anchor: str) -> Result:
    name = _part(part)
    keys = {"rules": ("rules",), "nat": ("nat",), "Tables": ("tables",), "all": tuple(_EMPTY)}
    if name not in keys:
        return not_modelled(call, f"-F {part}")
    with mac.change() as state:
        found = state["pf"]["rulesets"].get(anchor)
        if found is not None:
            for key in keys[name]:
                found[key] = type(found[key])()
            # An empty anchor does not exist.
            if anchor and not any(found.values()):
                del state["pf"]["rulesets"][anchor]
    message = {"rules": ["rules"], "nat": ["nat"], "Tables": []}.get(name, ["rules", "nat"])
    return Result(err="".join(f"{each} cleared\n" for each in message))


def _show(mac: Mac, call: Call, options: Options, anchor: str) -> Result:
    name = _part(options["s"])
    show = _SHOWN.get(name)
    if show is None:
        return not_modelled(call, f"-s {options['s']}")
    pf = mac.state["pf"]
    if anchor and name in {"rules", "nat", "Tables"} and not _knows(pf, anchor):
        # Only a warning, with exit code 0.
        return Result(err="pfctl: DIOCGETRULES: Invalid argument\n")
    lines = show(mac, pf, anchor)
    return Result(out="".join(f"{line}\n" for line in lines))


def _knows(pf: Mapping[str, Any], anchor: str) -> bool:
    return any(f"{name}/".startswith(f"{anchor}/") for name in pf["rulesets"])


def _section(key: str) -> Callable[[Mac, Mapping[str, Any], str], list[str]]:
    return lambda _, pf, anchor: list(pf["rulesets"].get(anchor, _EMPTY)[key])


def _tables(_: Mac, pf: Mapping[str, Any], anchor: str) -> list[str]:
    return sorted(pf["rulesets"].get(anchor, _EMPTY)["tables"])


def _anchors(_: Mac, pf: Mapping[str, Any], anchor: str) -> list[str]:
    """Return the anchors directly below this one, loaded or only named by rules."""
    depth = len(anchor.split("/")) if anchor else 0
    names = {name for name in pf["rulesets"] if name} | set(_anchors_in_rules(pf, anchor))
    below = {
        "/".join(name.split("/")[: depth + 1])
        for name in names
        if not anchor or name.startswith(f"{anchor}/")
    }
    return [f"  {name}" for name in sorted(below)]


def _anchors_in_rules(pf: Mapping[str, Any], anchor: str) -> Iterator[str]:
    ruleset = pf["rulesets"].get(anchor, _EMPTY)
    for rule in (*ruleset["rules"], *ruleset["nat"], *ruleset["dummynet"]):
        word, _, rest = rule.partition(' "')
        if word.endswith("anchor"):
            name = rest.partition('"')[0].removesuffix("/*")
            yield f"{anchor}/{name}" if anchor else name


def _info(mac: Mac, pf: Mapping[str, Any], _: str) -> list[str]:
    is_on = pf["enabled"]
    message = f"Enabled for {_elapsed(mac, pf['enabled_at'])}" if is_on else "Disabled"
    return [f"{'Status: ' + message:<46}Debug: Urgent", ""]


def _references(mac: Mac, pf: Mapping[str, Any], _: str) -> list[str]:
    if not pf["tokens_id"]:
        return ["No pf starter references held"]
    form = "{:<8} {:<28} {:<24} {}".format
    head = ["TOKENS:", form("PID", "Process Name", "TOKEN", "TIMESTAMP")]
    return head + [
        form("412", "pfctl", token, _elapsed(mac, since)) for token, since in pf["tokens_id"]
    ]


def _elapsed(mac: Mac, since: float) -> str:
    days, seconds = divmod(int(mac.now() - since), 86_400)
    return f"{days} days {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


_SHOWN: dict[str, Callable[[Mac, Mapping[str, Any], str], list[str]]] = {
    "rules": _section("rules"),
    "nat": _section("nat"),
    "dummynet": _section("dummynet"),
    "Tables": _tables,
    "Anchors": _anchors,
    "info": _info,
    "References": _references,
}


def _part(abbreviation: str) -> str:
    """Return the part with this abbreviation; empty if there is none."""
    return next((name for name in _PARTS if abbreviation and name.startswith(abbreviation)), "")


def _show_table(mac: Mac, call: Call, options: Options, anchor: str) -> Result:
    """Show a table; changing one is not modelled."""
    command, name = options.get("T", ""), options.get("t", "")
    ruleset = mac.state["pf"]["rulesets"].get(anchor)
    if command != "show" or not name:
        return not_modelled(call)
    if ruleset is None or name not in ruleset["tables"]:
        return _MISSING
    addresses = sorted(ruleset["tables"][name], key=_order)
    return Result(out="".join(f"   {each}\n" for each in addresses))


def _order(address: str) -> tuple[int, bytes]:
    bare = address.removeprefix("!").partition("/")[0]
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        return 0, bare.encode()
    return found.version, found.packed
