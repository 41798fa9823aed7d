"""pfctl: checks and loads rules, and shows what the kernel of a simulated Mac holds.

Live are the main ruleset, each anchor that was loaded, their tables, and who asked for pf to be on. A load replaces the rulesets
that it names, all of them or none; an anchor of an earlier load stays. The kernel's own work on packets is not modelled.
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
# pf's names for parts may be cut short.
_PARTS = (
    "nat", "queue", "rules", "Anchors", "Sources", "states", "info", "Interfaces", "labels", "timeouts", "memory", "Tables",
    "osfp", "all", "References", "dummynet",
)  # fmt: skip
_NOT_ENABLED = "pfctl: pf not enabled\n"
_FIRST_TOKEN = 15_053_025_338_191_571_000
_EMPTY: Mapping[str, Any] = pf_file.Ruleset().as_json()


Options = dict[str, str]


def pfctl(mac: Mac, call: Call) -> Result:
    """Do what the options say, in the order in which pfctl does it."""
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
    return _together(_acts(mac, call, options))


def on_boot(mac: Mac, state: dict[str, Any]) -> None:
    """Begin with pf off and with what its file holds, if it holds no mistake."""
    load = pf_file.Load(lambda path: _text(mac, path))
    loaded = load.rulesets if load.file(CONFIGURATION) else {}
    state["pf"] = {
        "enabled": False,
        "tokens_id": [],
        "rulesets": {name: ruleset.as_json() for name, ruleset in loaded.items()},
    }


def _acts(mac: Mac, call: Call, options: Options) -> Iterator[Result]:
    """Yield what each part of the call says; who asks stops at the first failure."""
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
        yield act(mac, call, options, anchor)
    if "f" in options:
        yield _load(mac, call, options, anchor)
    if "e" in options or "E" in options:
        yield _enable(mac, with_token="E" in options)


def _together(acts: Iterator[Result]) -> Result:
    out, err = "", ""
    for said in acts:
        out, err = out + said.out, err + said.err
        if said.code:
            return Result(said.code, out, err)
    return Result(0, out, err)


def _load(mac: Mac, call: Call, options: Options, anchor: str) -> Result:
    path = options["f"]
    text = call.stdin.decode("utf-8", "replace") if path == "-" else None

    def read(name: str) -> str | None:
        try:
            found = read_file(mac, call, name)
        except PermissionError:
            return None
        return None if found is None else found.decode("utf-8", "replace")

    load = pf_file.Load(read)
    is_good = load.file("stdin" if text is not None else path, anchor=anchor, text=text)
    # A load without -n into the kernel warns, into an anchor as well; so does a mere check.
    said = _FLUSHING + "".join(f"{line}\n" for line in load.errors)
    if not is_good:
        return Result(1, err=said)
    if "n" not in options:
        with mac.change() as state:
            for name, ruleset in load.rulesets.items():
                state["pf"]["rulesets"][name] = ruleset.as_json()
    shown = load.ruleset(anchor)
    lines = [*shown.rules, *shown.nat] if "v" in options else []
    return Result(out="".join(f"{line}\n" for line in lines), err=said)


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
            # An anchor that nothing is left in is none.
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
        # A mere warning: who looks for rules has to look at what is shown.
        return Result(err="pfctl: DIOCGETRULES: Invalid argument\n")
    lines = show(mac, pf, anchor)
    return Result(out="".join(f"{line}\n" for line in lines))


def _knows(pf: Mapping[str, Any], anchor: str) -> bool:
    return any(f"{name}/".startswith(f"{anchor}/") for name in pf["rulesets"])


def _rules(_: Mac, pf: Mapping[str, Any], anchor: str) -> list[str]:
    return list(pf["rulesets"].get(anchor, _EMPTY)["rules"])


def _nat(_: Mac, pf: Mapping[str, Any], anchor: str) -> list[str]:
    return list(pf["rulesets"].get(anchor, _EMPTY)["nat"])


def _dummynet(_: Mac, pf: Mapping[str, Any], anchor: str) -> list[str]:
    return list(pf["rulesets"].get(anchor, _EMPTY)["dummynet"])


def _tables(_: Mac, pf: Mapping[str, Any], anchor: str) -> list[str]:
    return sorted(pf["rulesets"].get(anchor, _EMPTY)["tables"])


def _anchors(_: Mac, pf: Mapping[str, Any], anchor: str) -> list[str]:
    """Return the anchors right below this one, whether they are loaded or only named by the rules."""
    depth = len(anchor.split("/")) if anchor else 0
    names = {name for name in pf["rulesets"] if name} | set(_attached(pf, anchor))
    below = {
        "/".join(name.split("/")[: depth + 1])
        for name in names
        if not anchor or name.startswith(f"{anchor}/")
    }
    return [f"  {name}" for name in sorted(below)]


def _attached(pf: Mapping[str, Any], anchor: str) -> Iterator[str]:
    for rule in _rules_of_all_kinds(pf["rulesets"].get(anchor, _EMPTY)):
        word, _, rest = rule.partition(' "')
        if word.endswith("anchor"):
            name = rest.partition('"')[0].removesuffix("/*")
            yield f"{anchor}/{name}" if anchor else name


def _rules_of_all_kinds(ruleset: Mapping[str, Any]) -> Iterator[str]:
    for key in ("rules", "nat", "dummynet"):
        yield from ruleset[key]


def _info(mac: Mac, pf: Mapping[str, Any], _: str) -> list[str]:
    is_on = pf["enabled"]
    message = f"Enabled for {_passed(mac, pf['enabled_at'])}" if is_on else "Disabled"
    return [f"{'Status: ' + message:<46}Debug: Urgent", ""]


def _references(mac: Mac, pf: Mapping[str, Any], _: str) -> list[str]:
    if not pf["tokens_id"]:
        return ["No pf starter references held"]
    form = "{:<8} {:<28} {:<24} {}".format
    head = ["TOKENS:", form("PID", "Process Name", "TOKEN", "TIMESTAMP")]
    return head + [
        form("412", "pfctl", token, _passed(mac, since)) for token, since in pf["tokens_id"]
    ]


def _passed(mac: Mac, since: float) -> str:
    days, seconds = divmod(int(mac.now() - since), 86_400)
    return f"{days} days {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


_SHOWN: dict[str, Callable[[Mac, Mapping[str, Any], str], list[str]]] = {
    "rules": _rules,
    "nat": _nat,
    "dummynet": _dummynet,
    "Tables": _tables,
    "Anchors": _anchors,
    "info": _info,
    "References": _references,
}


def _part(given: str) -> str:
    """Return the part that this begins the name of; nothing if there is none."""
    return next((name for name in _PARTS if given and name.startswith(given)), "")


def _text(mac: Mac, path: str) -> str | None:
    contents = mac.files.read(path)
    return None if contents is None else contents.decode("utf-8", "replace")


def act(mac: Mac, call: Call, options: Mapping[str, str], anchor: str) -> Result:
    """Show a table, or tell whether an address is in it; changing one by hand is not modelled."""
    command, name = options.get("T", ""), options.get("t", "")
    ruleset = mac.state["pf"]["rulesets"].get(anchor)
    if command != "show" or not name:
        return not_modelled(call)
    if ruleset is None or name not in ruleset["tables"]:
        return _MISSING
    addresses = sorted(ruleset["tables"][name], key=_order)
    return Result(out="".join(f"   {one}\n" for one in addresses))


def _order(address: str) -> tuple[int, bytes]:
    bare = address.removeprefix("!").partition("/")[0]
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        return 0, bare.encode()
    return found.version, found.packed
