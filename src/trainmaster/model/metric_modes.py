"""Whether smaller or larger values of a metric are better, by the words of its name."""

import re

from trainmaster.model.spec import Mode

_SMALLER = re.compile(r"loss|error|err|perplexity|ppl|mse|mae|rmse|nll|cer|wer|fid|bpb|bpc")
_LARGER = re.compile(r"acc|accuracy|auc|auroc|f1|precision|recall|reward|return|bleu|rouge|map|iou|dice|score|r2|psnr|ssim|elo")
_WORD = re.compile(r"[a-z]+[0-9]*")


def guessed_mode(name: str) -> Mode | None:
    """None if no word says it. `val/loss`: smaller; `eval_accuracy`: larger."""
    words = _WORD.findall(name.lower())
    if any(_SMALLER.fullmatch(word) for word in words):
        return Mode.MIN
    return Mode.MAX if any(_LARGER.fullmatch(word) for word in words) else None
