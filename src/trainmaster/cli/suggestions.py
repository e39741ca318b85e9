"""What to type instead of an unknown command: what Slurm, PBS, LSF, docker, kubectl, dstack and SkyPilot call things."""

import difflib
import shlex
from collections.abc import Mapping

# Also common English words for a command. A name maps to the words after `tm`.
ELSEWHERE = {
    **dict.fromkeys(("list", "ls", "jobs", "qstat", "bjobs", "gpunode"), "ps"),
    **dict.fromkeys(("status", "info", "describe", "inspect", "seff", "scontrol"), "show"),
    **dict.fromkeys(("srun", "start", "launch"), "run"),
    **dict.fromkeys(("qsub", "bsub", "create"), "submit"),
    **dict.fromkeys(("qdel", "bkill", "terminate", "end"), "cancel"),
    **dict.fromkeys(("restart", "retry", "qrerun", "brequeue"), "rerun"),
    **dict.fromkeys(("sinfo", "pbsnodes", "bhosts", "fleet", "fleets", "node"), "nodes"),
    **dict.fromkeys(("show-gpus", "gpu", "nvidia-smi", "gpustat"), "gpus"),
    **dict.fromkeys(("sstat", "stats", "watch", "smap", "sview", "monitor"), "top"),
    **dict.fromkeys(("log", "sattach", "bpeek"), "logs"),
    **dict.fromkeys(("shell", "ssh"), "attach"),
    **dict.fromkeys(("edit", "patch", "modify", "change", "set", "qalter", "bmod", "label", "annotate", "tag"), "update"),
    **dict.fromkeys(("sreport", "sshare", "cost", "costs", "cost-report", "billing"), "usage"),
    **dict.fromkeys(("offer", "offers", "dry-run", "validate"), "plan"),
    **dict.fromkeys(("server", "serve"), "up"),
    **dict.fromkeys(("shutdown", "quit"), "down"),
    **dict.fromkeys(("cp", "download", "scp", "fetch"), "get"),
    **dict.fromkeys(("sdiag", "check", "cluster-info", "ping"), "doctor"),
    **dict.fromkeys(("rules", "quota", "quotas", "sacctmgr"), "policy"),
    **dict.fromkeys(("remove", "delete"), "rm"),
    **dict.fromkeys(("auth", "signin"), "login"),
    **dict.fromkeys(("signout",), "logout"),
    "sacct": "ps --all --wide",
    "sprio": "queue",
    **dict.fromkeys(("events", "checkpoints", "checkpoint"), "show JOB"),
    "explain": "why",
    "cordon": "nodes drain",
    "drain": "nodes drain",
    "uncordon": "nodes resume",
    "undrain": "nodes resume",
    "qhold": "hold",
    "bstop": "hold",
    "qrls": "release",
    "bresume": "release",
    "diff": "compare",
    "spec": "get-spec",
    "yaml": "get-spec",
    "gc": "storage gc",
    "df": "storage",
}
# What does not exist: what one does meanwhile.
MISSING = {
    **dict.fromkeys(
        ("salloc", "interactive", "qlogin", "cpunode"),
        "an allocation to work in is not there yet; meanwhile: tm submit -- sleep 2h   then: tm attach JOB",
    ),
    **dict.fromkeys(
        ("image", "images", "build", "pull", "push", "commit", "rmi"),
        "container images are not there yet; an environment of packages: tm run --requirements FILE",
    ),
    **dict.fromkeys(
        ("suspend", "pause", "unpause"),
        "to suspend a running job is not there yet; if it saves checkpoints: tm cancel JOB   then: tm rerun JOB --continue",
    ),
    **dict.fromkeys(("rename",), "a job keeps its name; a tag to find it by: tm update JOB --tag K=V"),
    **dict.fromkeys(("scrontab", "cron", "schedule"), "jobs that repeat are not there yet; meanwhile: tm submit in a crontab"),
    **dict.fromkeys(("volume", "volumes", "mount"), "volumes are not there yet; a program reads the node's own paths: --data"),
    **dict.fromkeys(("port-forward", "proxy", "expose", "gateway"), "to forward ports is not there yet; meanwhile: ssh -L"),
    **dict.fromkeys(("scale", "autoscale", "autostop"), "nodes that come and go by need are not there yet; see: tm nodes"),
}
# Programs whose command is their second word, or the third after a noun (`sky jobs cancel`). It means what it means alone,
# except in lines that begin as in LINES.
GROUPS = ("scontrol", "docker", "podman", "kubectl", "sky", "ray", "dstack")
_NOUNS = ("container", "job", "jobs")
LINES = {
    "scontrol show node": "nodes",
    "scontrol show part": "policy",
    "scontrol update node": "nodes drain",
    "scontrol update part": "apply",
    "scontrol create": "apply",
    "scontrol requeuehold": "rerun --hold",
    "kubectl get no": "nodes",
    "kubectl get": "ps",
    "kubectl apply": "submit",
    "kubectl delete": "cancel",
    "kubectl cp": "get",
    "sky queue": "ps",
    "sky jobs queue": "ps",
    "sky status": "nodes",
    "sky api start": "up",
    "sky api stop": "down",
    "sky down": "cancel",
    "ray start": "up",
    "ray stop": "down",
    "ray status": "nodes",
    "ray list nodes": "nodes",
    "dstack apply": "run",
    "dstack run get": "show",
    "dstack metrics": "top",
}
_PROGRAMS = ("python", "python3", "torchrun", "bash")


def instead(name: str, words: list[str], commands: Mapping[str, str]) -> str:
    """A suggestion for an unknown command: `tm run` for a program or spec, what others mean by the name, or a similar one.

    `commands`: what to type, by the name of each command and alias.
    """
    if name.endswith((".yaml", ".yml")):
        return f"to run it: tm run {shlex.join(words)}"
    if name.endswith(".py") or name in _PROGRAMS:
        return f"to run it: tm run -- {'python ' if name.endswith('.py') else ''}{shlex.join(words)}"
    given = [word for word in words if not word.startswith("-")]
    if name in GROUPS and len(given) > 1:
        return _in_group(given, commands)
    if name in ELSEWHERE:
        return f"use: tm {ELSEWHERE[name]}"
    if name in MISSING:
        return MISSING[name]
    near = difflib.get_close_matches(name, [*commands, *ELSEWHERE, *MISSING], n=1, cutoff=0.6)
    if not near:
        return "all commands: tm --help"
    return MISSING.get(near[0]) or f"did you mean: tm {commands.get(near[0]) or ELSEWHERE[near[0]]}"


def _in_group(words: list[str], commands: Mapping[str, str]) -> str:
    """A suggestion for `scontrol hold JOB` or `sky jobs logs JOB`."""
    line = " ".join(words[:3]).lower()
    begins = max((one for one in LINES if line.startswith(one)), key=len, default=None)
    if begins is not None:
        return f"use: tm {LINES[begins]}"
    inner = words[2:] if words[1] in _NOUNS and len(words) > 2 else words[1:]
    return f"use: tm {commands[inner[0]]}" if inner[0] in commands else instead(inner[0], inner, commands)
