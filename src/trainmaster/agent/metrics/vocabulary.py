"""Words that programs use for counters, for measured values and for settings, and the numbers beside them."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

NUMBER = (
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,])|\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
    r"|(?:nan|NaN|NAN|inf|Inf|INF|Infinity)\b)"
)


def words(text: str) -> frozenset[str]:
    """A set of words."""
    return frozenset(text.split())


# Counters by rank: the first kind that a line names is its step. Weaker ones count only beside a value.
RANKS = {
    **dict.fromkeys(("global_step", "globalstep", "num_updates", "num_timesteps", "total_timesteps", "total_steps"), 0),
    **dict.fromkeys(("timesteps_total", "totalenvinteracts", "train_num_updates", "env_steps", "_step"), 0),
    **dict.fromkeys(("step", "iteration", "iter", "itr", "train_step", "training_step", "training_iteration"), 1),
    **dict.fromkeys(("steps", "iterations", "iters", "timestep", "timesteps", "updates", "update", "it", "nupdates"), 2),
    **dict.fromkeys(("epoch",), 3),
    **dict.fromkeys(("episode", "round", "generation"), 4),
}
STEP, EPOCH = 2, 3  # ranks up to STEP count steps
ALONE = words("global_step globalstep step iteration iter train_step training_step epoch")

_MEASURED = words(
    "loss losses acc accuracy accuracies ppl perplexity bleu rouge f1 auc auroc auprc roc ap map ndcg mrr iou miou dice psnr"
    " ssim fid wer cer rmse mse mae mape r2 nll logloss mlogloss bce xent crossentropy entropy kl elbo bpb bpc reward rewards"
    " rew return returns score precision recall sensitivity specificity error err mcc kappa learn"
)
_SETTINGS = words(
    "weight weights scale fn func function type coef coefficient threshold target clip max min best alpha beta gamma lambda"
    " smoothing every interval freq patience tolerance tol name mode factor margin decay num expected previous last worst"
    " baseline goal desired init initial limit bound penalty reduction improved"
)
_NO_METRIC = words(
    "rank of in at to for from after took by on is with the and or than best version line seed pid port gpu cuda node world"
    " worker batch_size v_num eta remaining elapsed host localhost python every lineno local_rank world_size num_workers"
    " time_left"
)
_SOURCE_FILES = (".py", ".cc", ".cpp", ".cu", ".rs", ".go", ".c", ".h", ".sh")
_TOKEN = re.compile(r"[a-z]+\d?")
_WITH_DIGIT = ("f1", "r2")


def _tokens(name: str) -> list[str]:
    """The words of a name in lower case without digits: `mAP50-95` is `map`, `top1_acc` is `top`, `acc`."""
    found = _TOKEN.findall(name.lower())
    return [token if token in _WITH_DIGIT else token.rstrip("0123456789") for token in found]


def measured(name: str) -> bool:
    """Whether the name says that its value was measured: a loss, an accuracy, a reward; not a weight or a target of one."""
    said = _tokens(name)
    return not _MEASURED.isdisjoint(said) and _SETTINGS.isdisjoint(said)


def is_metric(name: str) -> bool:
    """Whether a value under this name, in a line that names a step, is a metric."""
    lowered = name.lower()
    return lowered not in RANKS and lowered not in _NO_METRIC and not lowered.endswith(_SOURCE_FILES)


def number(text: Optional[str]) -> Optional[float]:
    """The number in a text that matches `NUMBER`, with or without thousands' commas."""
    try:
        return float(text.replace(",", "")) if text is not None else None
    except ValueError:
        return None


def is_exact(text: str) -> bool:
    """Whether a number is written as a measured one is, with a point or an exponent, or is not finite."""
    return not text.lstrip("+-").replace(",", "").isdigit()
