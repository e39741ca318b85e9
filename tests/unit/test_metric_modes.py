"""Which of two values is better, by the name of a metric alone. Where the name leaves it open, nothing is called the best."""

import pytest

from trainmaster.model.metric_modes import guessed_mode
from trainmaster.model.spec import Mode

SMALLER = (
    "loss", "val/loss", "train_err", "eval_perplexity", "test-RMSE", "fid", "loss_1", "train_loss_epoch", "train_loss_step", "timeloss/loss",
    "train/CrossEntropyLoss", "testRMSE", "vloss", "tdvloss1",
)  # fmt: skip
LARGER = ("val/prec@1", "EpisodeReward", "accuracy", "val_acc1", "episode_reward", "f1", "eval/bleu", "mAP", "top1_acc", "map50")
OPEN = (
    "lr", "step_time", "classes", "grad_norm", "value_1", "neg_mean_squared_error", "val/neg_rmse", "brier_score", "davies_bouldin_score", "accuracy_drop",
    "return_code", "loss_scale", "acc_target", "score_delta",
    "score_time", "reward_std", "std_test_score", "val_loss_std", "error_count", "eval/accuracy/n", "loss_ms", "return_variance", "loss_weight", "7",
    "1-acc", "val/1-acc", "1 - accuracy", "not_acc", "val_loss_improvement", "loss_gain", "loss_ratio", "loss_vs_baseline", "reward_baseline", "acc_grad", "map_lr",
    "steps_since_loss", "loss_inverse", "error_bars", "lossScale", "ErrorCount", "StdReturn", "LossTime", "NegMeanSquaredError",
)  # fmt: skip


@pytest.mark.parametrize(
    ("names", "mode"), [(SMALLER, Mode.MIN), (LARGER, Mode.MAX), (OPEN, None)], ids=["smaller", "larger", "open"]
)
def test_the_mode_that_a_name_says(names: tuple[str, ...], mode: Mode | None) -> None:
    assert {name: guessed_mode(name) for name in names} == dict.fromkeys(names, mode)
