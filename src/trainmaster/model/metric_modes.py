"""Whether smaller or larger values of a metric are better, by the words of its name."""

import re

from trainmaster.model.spec import Mode

_SMALLER = re.compile(r"(?:[a-z]*loss|error|err|perplexity|ppl|mse|mae|rmse|nll|cer|wer|fid|bpb|bpc)[0-9]*")
_LARGER = re.compile(
    r"f1|r2|(?:acc|accuracy|auc|auroc|prec|precision|recall|reward|return|bleu|rouge|map|iou|dice|score|psnr|ssim|elo)[0-9]*"
)
# With these words, the others say nothing, or the opposite.
_UNCLEAR = re.compile(
    r"neg|negative|not|inv|inverse|drop|gap|gain|improvement|ratio|vs|baseline|since|code|scale|brier|bouldin|delta|diff|target"
    r"|threshold|stds?|stdev|stddev|deviation|var|variance|bars?|grads?|lr"
)
_COMPLEMENT = re.compile(r"(?:^|/)1 ?- ?[a-z]")  # `1-acc`
# A name that ends in one of these is not of a loss or a score itself, but of how long it took, or of how many there are.
_OTHER = re.compile(
    r"times?|s|secs?|seconds?|ms|us|ns|minutes?|hours?|counts?|num|number|n|steps|epochs|samples|calls|weight|coef"
)
_WORD = re.compile(r"[a-z]+[0-9]*")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*")  # CrossEntropyLoss, testRMSE


def guessed_mode(name: str) -> Mode | None:
    """None if no word says it, or if one leaves it open. `val/loss`: smaller; `eval_accuracy`: larger; `score_time`: None."""
    words = [word.lower() for word in (*_WORD.findall(name.lower()), *_CAMEL.findall(name))]
    if not words or _OTHER.fullmatch(words[-1]) or any(_UNCLEAR.fullmatch(word) for word in words):
        return None
    if _COMPLEMENT.search(name.lower()):
        return None
    if any(_SMALLER.fullmatch(word) for word in words):
        return Mode.MIN
    return Mode.MAX if any(_LARGER.fullmatch(word) for word in words) else None
