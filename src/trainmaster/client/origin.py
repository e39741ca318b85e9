"""Where a job was submitted from: recorded so that a run can be reproduced."""

import os
import platform
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainmaster.errors import UsageError
from trainmaster.home import account_name

RECORDED = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "TZ")
# Read by the libraries of many training programs; the ones that decide most come first. `*`: all that begin so.
WELL_KNOWN = (
    "HF_HOME", "HF_TOKEN", "WANDB_API_KEY", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE",
    "HF_ENDPOINT", "HUGGING_FACE_HUB_TOKEN", "TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE", "WANDB_PROJECT", "WANDB_ENTITY",
    "WANDB_MODE", "WANDB_DIR", "WANDB_BASE_URL", "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD",
    "COMET_API_KEY", "NEPTUNE_API_TOKEN", "NEPTUNE_PROJECT", "CLEARML_API_ACCESS_KEY", "CLEARML_API_SECRET_KEY",
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "KAGGLE_USERNAME", "KAGGLE_KEY",
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_STORAGE_CONNECTION_STRING",
    "OMPI_MCA_*", "PMIX_MCA_*", "I_MPI_*", "MPICH_*", "UCX_*",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "CUDA_HOME", "CUDA_LAUNCH_BLOCKING", "PYTORCH_CUDA_ALLOC_CONF", "NCCL_*", "GLOO_SOCKET_IFNAME",
    "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "XLA_FLAGS", "JAX_PLATFORMS",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "KERAS_BACKEND", "KERAS_HOME", "TFDS_DATA_DIR", "TF_CPP_MIN_LOG_LEVEL", "NLTK_DATA", "PYTHONHASHSEED",
    "XDG_CACHE_HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
)  # fmt: skip
_NAMED_MAX = 3
_SHORT = 2  # characters: such a word is no name of a variable
_BASIC = frozenset(  # a job has its own
    (
        "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "TERM", "CUDA_VISIBLE_DEVICES", "RANK",
        "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", *RECORDED,
    )
)  # fmt: skip
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def origin(
    workdir: Path, git: tuple[str | None, bool] = (None, False), environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """User, host, directory and environment of a submit (`model.spec.Origin`).

    `git` is (commit, dirty), as in `Gathered`. Raises: UsageError if the directory's name is not UTF-8.
    """
    environment = os.environ if environment is None else environment
    commit, dirty = git
    directory = os.path.abspath(workdir)
    if not _is_text(directory):
        said = f"the path of the work directory is not UTF-8 text: {os.fsencode(directory)!r}"
        raise UsageError(said, "rename the directory, or submit from another one")
    return {
        "user": account_name(),
        "host": socket.gethostname(),
        "directory": directory,
        "python": platform.python_version(),
        "variables": {name: environment[name] for name in RECORDED if name in environment and _is_text(environment[name])},
        "git_commit": commit,
        "git_dirty": dirty,
        "umask": _umask(),
    }


def _umask() -> int | None:
    """This process's umask. Asking the system for it would set it for a moment, for all threads."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.partition(":")[2], 8) for line in lines if line.startswith("Umask:")), None)


def staying(spec: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> list[str]:
    """What to say about well-known variables that are set here and that the job does not get. Names only, never values."""
    environment = os.environ if environment is None else environment
    section = spec.get("environment")
    given = section.get("variables") if isinstance(section, Mapping) else None
    known = (name for pattern in WELL_KNOWN for name in matching(pattern, environment))
    names = [name for name in known if environment.get(name) and name not in (given or ())]
    told = []
    if len(names) == 1:
        told.append(f"{names[0]} stays here: --env {names[0]} takes it along")
    elif names:
        more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        listed = names[:_NAMED_MAX] if more else [*names[:-2], " and ".join(names[-2:])]
        told.append(f"{', '.join(listed)}{more} stay here: --env NAME takes one along")
    if environment.get("CUDA_VISIBLE_DEVICES"):  # a job cannot take it along
        told.append("CUDA_VISIBLE_DEVICES stays here: the job sees the GPUs that it asks for (--gpus)")
    return told


def matching(pattern: str, environment: Mapping[str, str]) -> list[str]:
    """The names that an entry of `WELL_KNOWN` means."""
    begin, star, _ = pattern.partition("*")
    several = sorted(name for name in environment if name.startswith(begin) and not name.endswith("_VERSION"))
    return several if star else [pattern]


def wanted(spec: Mapping[str, Any], lines: list[str], environment: Mapping[str, str] | None = None) -> str:
    """What to say if the last lines of a failed job name a variable that is set here and that the job did not get; else ""."""
    environment = os.environ if environment is None else environment
    given = (spec.get("environment") or {}).get("variables") or ()
    said = dict.fromkeys(word for line in lines for word in _WORD.findall(line))
    names = [name for name in said if len(name) > _SHORT and environment.get(name) and name not in given and not _own(name)]
    if not names:
        return ""
    options = " ".join(f"--env {name}" for name in names[:_NAMED_MAX])
    one = len(names) == 1
    listed = ", ".join(names[:_NAMED_MAX])
    return f"{listed} {'is' if one else 'are'} set in this shell, and the job did not get {'it' if one else 'them'}: {options}"


def _own(name: str) -> bool:
    return name in _BASIC or name.startswith("TRAINMASTER_")


def _is_text(value: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in value)
