"""Prints `tm show --provenance`: the code, data and environment of a job."""

from typing import Any

from trainmaster.cli.render import human

_RELATIONS = {"requeue": "requeued", "reproduction": "reproduced"}
_NAME = 13
_NOT_RECORDED = "not recorded: it had not begun, or its agent was killed"


def lineage(job: dict[str, Any]) -> dict[str, str]:
    """Parent and children of a job: `from: digits-3@450`, `digits-3@450 (about)`, `children: digits-5, digits-6`."""
    told, parent = {}, job.get("lineage")
    if parent is not None:
        about = " (about)" if parent.get("approximate") else ""
        start = "" if parent["step"] is None else f"@{parent['step']}{about}"
        if parent["relation"] == "fork":
            told["from"] = f"{parent['job']}{start}"
        else:
            begin = f", from {parent['owner']}{start}" if parent["checkpoint"] else ""
            told["from"] = f"{parent['job']}, {_RELATIONS[parent['relation']]}{begin}"
    if job.get("children"):
        told["children"] = ", ".join(job["children"])
    return told


def draw(found: dict[str, Any]) -> list[str]:
    """All of it as lines, one line per package."""
    origin, code = found["origin"], found["code"]
    lines = [f"{found['id']}", *_section(_submitted(found, origin, code)), *_section(lineage(found))]
    for version in found["data"]:
        exact = "" if version["exact"] else ", by names, sizes and times"
        doubt = version.get("doubt", "")  # a server of an older version does not say
        known = f"{(version['digest'] or '')[:12]}{exact}, {human.size(version['bytes'])}"
        told = known if version["digest"] else f"its version is unknown{': ' + doubt if doubt else ''}"
        lines.append(_line("data", f"{version['name']}: {version['uri']} ({told})"))
    params = found["spec"]["params"]
    lines += [_line("params", ", ".join(f"{name}={value}" for name, value in params.items()))] if params else []
    where: dict[str, list[str]] = {}
    for attempt in found["attempts"]:
        for index, node in enumerate(attempt["nodes"]):
            devices = f" on devices {', '.join(map(str, node['devices']))}" if node["devices"] else ""
            where.setdefault(node["environment"] or "", []).append(f"{attempt['number']}/n{index} on {node['node']}{devices}")
    unshown = found.get("unshown", {})  # a server of an older version does not say why
    for name, places in where.items():
        lines += ["", f"Attempt {', '.join(places)}"]
        record = found["environments"].get(name)
        why = unshown.get(name, "its record is lost or damaged") if name else _NOT_RECORDED
        lines += _environment(record, name) if record is not None else [_line("environment", why)]
    return lines


def _submitted(found: dict[str, Any], origin: dict[str, Any], code: dict[str, Any]) -> dict[str, str]:
    member = found.get("member") or origin["user"] or "?"
    account = f" (account {origin['user']})" if origin["user"] not in ("", member) else ""
    told = {"submitted": f"by {member}{account} on {origin['host'] or '?'} from {origin['directory'] or '?'}"}
    if origin["git_commit"]:
        told["git commit"] = origin["git_commit"] + ("" if origin["git_dirty"] else ", git saw no change since")
    if origin["git_remote"]:
        told["git remote"] = origin["git_remote"]
    if origin["git_diff"]:
        kept = "too large to be kept whole" if origin["git_diff_cut"] else "print it: --diff"
        told["git diff"] = f"{origin['git_diff'][:12]}, {human.size(origin['git_diff_bytes'])}; {kept}"
    elif origin["git_dirty"]:
        copied = "nothing of them is copied" if code["in_place"] else "the code copy has those that were copied"
        told["git diff"] = f"none is recorded, although files differ from the commit; {copied}"
    told["code"] = "in place, not copied" if code["in_place"] else (code["digest"] or "none")
    told["client"] = f"Python {origin['python']}" if origin["python"] else ""
    return told


def _environment(record: dict[str, Any], name: str) -> list[str]:
    python, torch, machine = record["python"], record["torch"], record["machine"]
    driver = machine["driver"] and f"{machine['driver']}, up to CUDA {machine['driver_cuda']}"
    told = {
        "environment": name[:12],
        "Python": f"{python['version']}, {python['path']}{_doubt(python)}" if python else "none found",
        "torch": f"{torch['version']}, {_built(torch)}" if torch else "",
        "host": f"{machine['host']}, {machine['system']}, kernel {machine['kernel']}, {machine['libc'] or 'libc unknown'}",
        "processor": f"{machine['cpus']} × {machine['cpu']}, {human.size(machine['memory_bytes'])}",
        "devices": ", ".join(f"{one['index']}: {one['name']}" for one in machine["devices"]),
        "driver": driver or "",
        "packages": f"{len(record['packages'])}",
        "not read": "; ".join(record.get("unread", ())),  # so packages may be missing
        "other code": ", ".join(record.get("unnamed", ())),  # on the path of its Python
    }
    built = {package: f"  ({told or 'not from an index'})" for package, told in record.get("built_from", {}).items()}
    notes = built | dict.fromkeys(record["editable"], "  (in place: its code may have changed since)")
    packages = [f"    {name}=={version}{notes.get(name, '')}" for name, version in sorted(record["packages"].items())]
    return [*_section(told), *packages]


def _doubt(python: dict[str, Any]) -> str:
    return "" if python.get("certain") else "; the command may start another one, whose packages are not these"


def _built(torch: dict[str, Any]) -> str:
    if torch["hip"]:
        return f"built for ROCm {torch['hip']}"
    return f"built for CUDA {torch['cuda']}" if torch["cuda"] else "built for the processor alone"


def _section(told: dict[str, str]) -> list[str]:
    return [_line(name, value) for name, value in told.items() if value]


def _line(name: str, value: str) -> str:
    return f"  {name:<{_NAME}}{value}"
