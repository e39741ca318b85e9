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
    **dict.fromkeys(("global_step", "globalstep", "num_updates", "num_timesteps", "total_timesteps", "env_step"), 0),
    **dict.fromkeys(("timesteps_total", "totalenvinteracts", "env_steps", "_step"), 0),
    **dict.fromkeys(("train_num_updates", "valid_num_updates", "total_train_updates"), 0),
    **dict.fromkeys(("step", "iteration", "iter", "itr", "train_step", "training_step", "training_iteration"), 1),
    **dict.fromkeys(("current_step", "current_steps", "current_iteration", "current_iter"), 1),
    **dict.fromkeys(("steps", "iterations", "iters", "timestep", "timesteps", "updates", "update", "up", "it", "nupdates"), 2),
    "total_steps": 2,  # may be the number that is counted to
    **dict.fromkeys(("epoch", "epochs", "ep"), 3),
    **dict.fromkeys(("episode", "round", "generation", "tick"), 4),
}
STEP, EPOCH, BATCH = 2, 3, 5  # ranks up to STEP count steps; batches count only where nothing else ever does
ALONE = words("global_step globalstep step iteration iter train_step training_step epoch tick")

_MEASURED = words(
    "loss losses acc accuracy accuracies ppl perplexity bleu rouge f1 auc auroc auprc roc ap map ndcg mrr iou miou dice psnr"
    " ssim fid wer cer bwer bcer rmse mse mae mape r2 nll logloss mlogloss bce xent crossentropy entropy kl elbo bpb bpc"
    " reward rewards rew return returns score precision prec recall hmean sensitivity specificity error err mcc kappa learn"
    " cost pearson spearman chrf meteor fitness"
)
_SETTINGS = words(
    "weight weights scale type coef coefficient threshold target clip max min best alpha beta gamma lambda norm"
    " coeff multiplier ratio"
    " smoothing every interval freq patience tolerance tol name mode factor margin decay num expected previous last worst"
    " baseline goal desired init initial limit bound penalty reduction improved"
)
_KINDS = words("fn func function")  # loss_function: a setting; value function loss: measured
_TOP_MAX = 12  # characters: `valid_top10`
_MEANS = words("mean average avg")
_COUNT_MAX = 1e15
_RATES = ("lr", "learning_rate", "learningrate")
_COUNTED_AS = words("max maximum total current best train val valid test num n start last of warmup")
_COUNTED = words("step steps epoch epochs iter iters iteration iterations episode update updates")
_NO_METRIC = words(
    "rank of in at to for from after took by on is with the and or than best version line seed pid port gpu cuda node world"
    " worker batch_size v_num eta remaining elapsed host localhost python every lineno local_rank world_size num_workers"
    " time_left over run trial fold epoch_loaded progress eval_episode last_best id key"
)
_SOURCE_FILES = (".py", ".cc", ".cpp", ".cu", ".rs", ".go", ".c", ".h", ".sh")
_NO_VALUES = (*_SOURCE_FILES, "exception", *(f"{kind}error" for kind in ("value", "key", "type", "index", "runtime", "os")))
_TOKEN = re.compile(r"f1|r2|[a-z]+")
_CAMEL = re.compile(r"[A-Z]?[a-z]+")


def _tokens(name: str) -> list[str]:
    """The words of a name in lower case without digits: `mAP50-95` is `map`, `top1_acc` is `top`, `acc`."""
    return _TOKEN.findall(name.lower())


def measured(name: str) -> bool:
    """Whether the name says that its value was measured: a loss, an accuracy, a reward; not a weight or a target of one."""
    said = _tokens(name)
    if said[-1:] == ["top"] and name[-1:].isdigit() and len(name) <= _TOP_MAX:
        return True  # `top5`: an accuracy
    if not name[1:].islower():
        said += [piece.lower() for piece in _CAMEL.findall(name)]  # CrossEntropyLoss
    if _MEASURED.isdisjoint(said) or said == ["learn", "rate"]:
        return False
    return _SETTINGS.isdisjoint(said) and (_KINDS.isdisjoint(said) or said[-1] in _MEASURED)


def is_rate(name: str) -> bool:
    """Whether the name is that of the learning rate: a metric beside others, a setting alone."""
    return name.lower() in _RATES


def counted(name: str, value: float) -> bool:
    """Whether a value is a count under another name, and no metric: `max_updates=22000`, `current_epoch=1`, `Val_steps=20`.

    Of names that are not those of measured values.
    """
    whole = abs(value) < _COUNT_MAX and value == int(value)  # of NaN, neither is so
    tokens = _tokens(name) if whole else []
    return len(tokens) > 1 and tokens[0] in _COUNTED_AS and tokens[-1] in _COUNTED


def is_metric(name: str) -> bool:
    """Whether a value under this name, in a line that names a step, is a metric."""
    lowered = name.lower()
    return lowered not in RANKS and lowered not in _NO_METRIC and not lowered.endswith(_NO_VALUES)


def number(text: Optional[str]) -> Optional[float]:
    """The number in a text, with or without thousands' commas, or with a stop behind it: a pattern may take that, too."""
    try:
        return float(text.replace(",", "").rstrip(".")) if text is not None else None
    except ValueError:
        return None


def is_exact(text: str) -> bool:
    """Whether a number is written as a measured one is, with a point or an exponent, or is not finite."""
    return not text.lstrip("+-").replace(",", "").isdigit()


_GOES_ON = re.compile(r" ?[x×·*] ?10(?:\^|\*\*|[⁻⁰¹²³⁴-⁹])")  # 1.5 x 10^-3
_GROUP = re.compile(r" \d{3}(?!\w)")  # 1 234.5
_OUT_OF = re.compile(r" (?:out )?of (?!0\b)(\d{1,12})(?![\w.])")


def is_part(text: str, start: int, end: int) -> bool:
    """Whether the digits there are only a part of a number: `1.5 x 10^-3`, `1 234.5`, or `0,523` with its decimal comma."""
    digits = text[start:end].lstrip("+-")
    more = _GOES_ON.match(text, end) or (digits.isdigit() and _GROUP.match(text, end))
    return bool(more) or digits.startswith("0,")


def out_of(text: str, end: int, exact: bool) -> Optional[str]:
    """The 10 of `Accuracy: 5 of 10`, behind a whole number."""
    match = None if exact else _OUT_OF.match(text, end)
    return None if match is None else match[1]


_AT = re.compile(
    r"((?:[A-Za-z][\w@/-]{0,60} ){0,5}[A-Za-z][\w@/-]{0,60}) at (?:step|iteration|iter|epoch) \d{1,12}(?::| is) {1,2}"
)
_OF = re.compile(r"(?i)(?:((?:[a-z]{1,20} ){1,3}after [a-z]{1,20}) ?"  # Reward after training: 17.3
                 r"|((?:[a-z]{1,20} ){0,2}[a-z]{1,20}) (?:\(?(?:of|on|for|over|after) [^:=]{1,100}|\d{1,12}))[:=] {0,2}")
_DECIMAL = re.compile(r"[-+]?\d{1,15}\.\d")


def of_all(text: str) -> tuple[str, int]:
    """The name in `Accuracy of the network on the 10000 test images: 97 %` or `MRR at step 5: 0.5`, and where the value is."""
    at_step = _AT.match(text) if " at " in text else None
    match = at_step or _OF.match(text)
    name = "" if match is None else next(filter(None, match.groups()))
    if match is None or not (measured(name) or (at_step and _DECIMAL.match(text, match.end()))):
        return "", -1
    return name.replace(" ", "_"), match.end()


_COCO = re.compile(
    r"Average (?:Precision|Recall) {1,2}\((A[PR])\) {1,2}@\[ IoU=0\.(\d\d)(:0\.95)? {0,2}"
    r"\| {0,2}area= {0,2}(all|small|medium|large) {0,2}\| {0,2}maxDets= {0,2}(\d{1,4}) {0,2}\] {0,2}= {0,2}(-?\d\.\d{1,9})\Z"
)


def coco(text: str) -> Optional[dict[str, float]]:
    """A line of COCO's summary under its usual name: `AP`, `AP50`, `APs`, `AR100`. Empty for -1: there is no such object."""
    match = _COCO.match(text)
    if match is None:
        return None
    kind, iou, over, area, most, value = match.groups()
    of_recall = most if kind == "AR" and area == "all" else ""
    name = f"{kind}{'' if over else iou}{'' if area == 'all' else area[0]}{of_recall}"
    return {name: float(value)} if float(value) >= 0.0 else {}
