"""What is read from lines as people paste them of public programs' logs: positions in epochs, names, tables."""

import pytest

from trainmaster.agent.metrics.counting import EpochCounts
from trainmaster.agent.metrics.parse import Parser

HOST = "[lab-03] 2021-02-03 04:05:06,789"

RUNS: dict[str, list[tuple[str, object]]] = {
    "Monodepth2: the batches of each epoch, without their number": [
        ("epoch   0 | batch      0 | examples/s:   5.0 | loss: 0.25 | time elapsed: 00h00m20s", (0, {"examples/s": 5.0, "loss": 0.25})),
        ("epoch   0 | batch    250 | examples/s:  15.0 | loss: 0.125 | time elapsed: 00h05m10s", (250, {"examples/s": 15.0, "loss": 0.125})),
        ("epoch   0 | batch    500 | examples/s:  13.5 | loss: 0.5 | time elapsed: 00h09m30s", (500, {"examples/s": 13.5, "loss": 0.5})),
        ("epoch   1 | batch      0 | examples/s:  13.5 | loss: 0.5 | time elapsed: 00h09m50s", (750, {"examples/s": 13.5, "loss": 0.5})),
    ],
    "RETURNN: the first batch is not the first step of all": [
        ("start epoch 2 with learning rate 0.5 ...", (2, {"learning_rate": 0.5})),
        ("train epoch 2, batch 0, cost:output 16.5, elapsed 0:00:02", (2, {"cost:output": 16.5})),
        ("train epoch 2, batch 1, cost:output 15.5, elapsed 0:00:02", (1, {"cost:output": 15.5})),
        ("epoch 2 score: 17.75 elapsed: 0:00:02", (None, {"score": 17.75})),
        ("train epoch 3, batch 0, cost:output 12.5, elapsed 0:00:01", (2, {"cost:output": 12.5})),
    ],
    "a program that names its steps names no batch as one": [
        ("epoch 1 step 30: loss 0.5", (30, {"loss": 0.5})),
        ("epoch 1 batch 15: loss 0.25", (None, {"loss": 0.25})),
    ],
    "the batches of an evaluation are no steps": [
        ("Epoch 1, Batch 20, loss: 0.5", (1, {"loss": 0.5})),
        ("Epoch 1, Batch 40, loss: 0.25", (40, {"loss": 0.25})),
        ("val: Epoch 1, Batch 90, loss: 0.25", (None, {"val_loss": 0.25})),
    ],
    "the size of a batch is no position": [
        ("Epoch 1, batch 64, loss: 0.5", (1, {"loss": 0.5})),
        ("Epoch 2, batch 64, loss: 0.25", (2, {"loss": 0.25})),
    ],
    "Sockeye 1: units of speeds are no names": [
        (
            "[INFO:sockeye.training] Epoch[0] Batch [50]\tSpeed: 69.5 samples/sec 1956.5 tokens/sec 1.25 updates/sec\tperplexity=44.5",
            (0, {"Speed": 69.5, "perplexity": 44.5}),
        ),
    ],
    "PyTorch's tutorial: all lines of an epoch": [
        ("[1,  2000] loss: 2.25", (1, {"loss": 2.25})),
        ("[1,  4000] loss: 1.75", (4000, {"loss": 1.75})),
        ("[1,  6000] loss: 1.5", (6000, {"loss": 1.5})),
        ("[2,  2000] loss: 1.25", (8000, {"loss": 1.25})),
        ("Accuracy of the network on the 10000 test images: 54 %", (None, {"Accuracy": 54.0})),
    ],
    "OpenNMT-py and fairseq of old: a position behind the epoch": [
        ("Epoch  1, 50/2000; acc:   3.75; ppl: 792.5; 3438 src tok/s;   9823 s elapsed", (50, {"acc": 3.75, "ppl": 792.5})),
        ("Epoch  2, 50/2000; acc:   4.75; ppl: 692.5; 3438 src tok/s;   9823 s elapsed", (2050, {"acc": 4.75, "ppl": 692.5})),
        ("| epoch 003  100 / 2000 loss=1.25 (1.50), bsz=32", (4100, {"loss": 1.25, "bsz": 32.0})),
        ("| epoch 003 | train loss 1.5 | words/s    961 | bsz    32", (None, {"train_loss": 1.5, "words/s": 961.0, "bsz": 32.0})),
        ("[Train Epoch: 4/20] [200/2000 images] loss=0.625", (6200, {"loss": 0.625})),
    ],
    "Nanotron: the ranks in a prefix are no metrics": [
        ("01/17/2024 13:47:27 [INFO|DP=0|PP=1|TP=0|node-26-0]: iteration: 10 / 1000 | lm_loss: 10.5 | lr: 1e-05", (10, {"lm_loss": 10.5, "lr": 1e-05})),
        ("[0034:0]:01/17/2024 13:47:29 [INFO|DP=0|PP=1|TP=0|node-26-0]: iteration: 11 / 1000 | lm_loss: 10.25", (11, {"lm_loss": 10.25})),
    ],
    "ESPnet: a host with a hyphen": [
        (f"{HOST} (trainer:452) INFO: 2epoch:train:1-10batch: loss=59.5, acc=0.125", (10, {"loss": 59.5, "acc": 0.125})),
    ],
    "fairseq: an object of texts, one of them a percentage": [
        ('{"epoch": 2, "loss": "3.25", "ppl": "2.5", "num_updates": 50, "clip": "100%"}', (50, {"epoch": 2.0, "loss": 3.25, "ppl": 2.5, "clip": 100.0})),
    ],
    "RotatE and Deeplearning4j: a value at a step": [
        ("2021-11-08 04:46:57,318 INFO     Training average positive_sample_loss at step 100: 3.25", (100, {"Training_average_positive_sample_loss": 3.25})),
        ("2021-11-08 04:46:57,318 INFO     Training average loss at step 100: 1.5", (100, {"Training_average_loss": 1.5})),
        ("2021-11-08 04:46:57,318 INFO     Valid MRR at step 100: 0.25", (100, {"Valid_MRR": 0.25})),
        ("2021-11-08 04:46:57,318 INFO     Valid HITS@10 at step 100: 0.5", (100, {"Valid_HITS@10": 0.5})),
        ("[main] INFO org.deeplearning4j.optimize.listeners.ScoreIterationListener - Score at iteration 101 is 0.125", (101, {"Score": 0.125})),
        ("Accuracy at iteration 110: 0.75", (110, {"Accuracy": 0.75})),
        ("Time at step 120: 0.5 s", (120, {})),
        ("Saved at step 130: 5 files", None),
    ],
    "Flair: two means under one name": [
        ("- F-score (micro) 0.75", (None, {"F-score_micro": 0.75})),
        ("- F-score (macro) 0.5", (None, {"F-score_macro": 0.5})),
        ("F1 (weighted): 0.25, F1 (macro): 0.125", (None, {"F1_weighted": 0.25, "F1_macro": 0.125})),
    ],
    "deeprm: a mean and its deviation": [
        ("MeanRew: \t -257.5 +- 63.5", (None, {"MeanRew": -257.5})),
        ("step 5 loss: 0.5 +/- 0.25, acc: 0.75 ± 0.125", (5, {"loss": 0.5, "acc": 0.75})),
    ],
    "spaCy: a table whose header begins with one letter and a sign": [
        ("E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  SCORE ", None),
        ("---  ------  ------------  --------  ------  ------", None),
        ("  0       0          0.00     45.50    0.25    0.00", (0, {"LOSS_TOK2VEC": 0.0, "LOSS_NER": 45.5, "ENTS_F": 0.25, "SCORE": 0.0})),
        ("  0     200         12.50   1834.50   55.25    0.55", (200, {"LOSS_TOK2VEC": 12.5, "LOSS_NER": 1834.5, "ENTS_F": 55.25, "SCORE": 0.55})),
    ],
    "Ludwig of old: a table whose rows are the parts of the data": [
        ("Epoch   4", (4, {})),
        ("╒══════════╤════════╤════════════╕", None),
        ("│ rating   │   loss │   accuracy │", None),
        ("╞══════════╪════════╪════════════╡", None),
        ("│ train    │ 1.1250 │     0.3750 │", (None, {"train_loss": 1.125, "train_accuracy": 0.375})),
        ("├──────────┼────────┼────────────┤", None),
        ("│ vali     │ 1.2500 │     0.2500 │", (None, {"vali_loss": 1.25, "vali_accuracy": 0.25})),
        ("╘══════════╧════════╧════════════╛", None),
        ("│ other    │ 1.2500 │     0.2500 │", None),
    ],
    "char-rnn: the step of all, and the epochs as a fraction": [
        ("634/9500 (epoch 3.337), train_loss = 1.75, grad/param norm = 3.5e-02, time/batch = 0.125s", (634, {"train_loss": 1.75, "grad/param_norm": 0.035})),
        ("635/9500 (epoch 3), train_loss = 1.5, time/batch = 0.125", (635, {"train_loss": 1.5, "time/batch": 0.125})),
    ],
    "a logger with long dashes": [
        ("2020-10-10 08:33:27,988 — agents.vpg.vpg — INFO — Epoch: 3", (3, {})),
        ("2020-10-10 08:33:27,988 — agents.vpg.vpg — INFO — Average Episode Return: 24.5    ", (None, {"Average_Episode_Return": 24.5})),
        ("2020-10-10 08:33:27,989 — agents.vpg.vpg — INFO — Std Episode Return:     11.5    ", (None, {"Std_Episode_Return": 11.5})),
        ("2020-10-10 08:33:27,989 — agents.vpg.vpg — INFO — Loss of the current policy:     –0.5", (None, {"Loss": -0.5})),
    ],
    "WassersteinGAN: epoch, batch, and the steps of the generator": [
        ("[0/25][735/782][147] Loss_D: -1.25 Loss_G: 0.625 Loss_D_fake 0.5", (735, {"Loss_D": -1.25, "Loss_G": 0.625})),
        ("[1/25][5/782][157] Loss_D: -1.5 Loss_G: 0.5 Loss_D_fake 0.5", (787, {"Loss_D": -1.5, "Loss_G": 0.5})),
    ],
    "AutoGluon: the value stands before its name": [
        ("Fitting model: LightGBM ...", None),
        ("\t-2.5\t = Validation score   (-root_mean_squared_error)", (None, {"Validation_score": -2.5})),
        ("\t0.42s\t = Training   runtime", None),
        ("\t0.75\t = Validation accuracy score", (None, {"Validation_accuracy_score": 0.75})),
        ("0.5 = alpha", None),
    ],
    "DreamerV3: names and values between slashes, below a step": [
        ("train/actor_loss 2.5 / train/action_max 4.5 /", None),
        ("────────── Step 15104 ──────────", (15104, {})),
        ("episode/length 3000 / episode/score 0.5 / episode/reward_rate 0 /   ", (None, {"episode/length": 3000.0, "episode/score": 0.5, "episode/reward_rate": 0.0})),
        ("train/action_mean -0.25 / train/opt_loss 1e-6 /", (None, {"train/action_mean": -0.25, "train/opt_loss": 1e-6})),
        ("Saved 5 / 10 files", None),
    ],
    "super-gradients: a tree of the training's and the validation's values": [
        ("SUMMARY OF EPOCH 1", (1, {})),
        ("├── Training", None),
        ("│   ├── Ppyoloeloss/loss = 2.25", (None, {"Ppyoloeloss/loss": 2.25})),
        ("│   │   ├── Best until now = 2.5 (↘ -0.0625)", None),
        ("│   │   └── Epoch N-1      = 2.5 (↘ -0.0625)", None),
        ("└── Validation", None),
        ("    ├── F1@0.50 = 0.25", (None, {"val_F1@0.50": 0.25})),
        ("    │   └── Epoch N-1      = 0.5 (↘ -0.0625)", None),
        ("    └── Ppyoloeloss/loss = 1.5", (None, {"val_Ppyoloeloss/loss": 1.5})),
        ("Train epoch 2: 100%|##########| 1/1 [00:01<00:00,  1.73s/it, PPYoloELoss/loss=2.125]", (2, {"PPYoloELoss/loss": 2.125})),
        ("├── Training", None),
        ("│   ├── Ppyoloeloss/loss = 2.125", (None, {"Ppyoloeloss/loss": 2.125})),
    ],
    "Ray: a table of one result, below its step": [
        ("Training finished iteration 2 at 2023-06-27 09:28:54. Total running time: 2min 4s", (2, {})),
        ("╭───────────────────────────────────────────────╮", None),
        ("│ Training result                               │", None),
        ("├───────────────────────────────────────────────┤", None),
        ("│ training_iteration                          2 │", None),
        ("│ acc                                         1 │", (None, {"acc": 1.0})),
        ("│ config/train_loop_config/lr             0.001 │", None),
        ("│ env_runners/episode_len_mean            50.25 │", (None, {"env_runners/episode_len_mean": 50.25})),
        ("│ loss                                  0.32971 │", (None, {"loss": 0.32971})),
        ("╰───────────────────────────────────────────────╯", None),
        ("│ acc                                         1 │", None),
    ],
    "OpenPCDet: timm's line with the number of epochs": [
        ("Train:    1/3 ( 33%) [  49/323 ( 15%)]  Loss: 36.5 (81.7)  LR: 1.5e-04", (49, {"Loss": 36.5, "LR": 1.5e-4})),
        ("Train:    2/3 ( 67%) [  49/323 ( 15%)]  Loss: 26.5 (81.7)  LR: 1.5e-04", (372, {"Loss": 26.5, "LR": 1.5e-4})),
    ],
    "Cellpose: a number and a comma": [
        ("2025-12-01 12:10:57,884 [INFO] 350, train_loss=0.25, test_loss=0.0, LR=0.000010, time 1736.08s", (350, {"train_loss": 0.25, "test_loss": 0.0, "LR": 1e-5})),
        ("3, loss 0.5", (None, {"loss": 0.5})),
    ],
    "Marian: what a script measures has its name": [
        ("[2021-07-17 13:51:53] [valid] Ep. 1 : Up. 2000 : translation : 2.25 : new best", (2000, {"valid_translation": 2.25})),
    ],
}


@pytest.mark.parametrize("name", RUNS)
def test_the_lines_of_a_run(name: str) -> None:
    parser = Parser()
    for line, read in RUNS[name]:
        assert parser.parse(line.encode()) == read, line


def test_a_resumed_program_goes_on_with_the_batches_of_its_epochs() -> None:
    """Its first line alone does not show that batches are positions: the attempt before does."""
    counts = EpochCounts()
    before, line = Parser(epochs=counts), "epoch {} | batch {} | loss: 0.5"
    steps = [before.parse(line.format(epoch, batch).encode()) for epoch, batch in ((0, 0), (0, 50), (1, 0), (1, 50), (2, 0))]
    assert [found and found[0] for found in steps] == [0, 50, 100, 150, 200]
    found = Parser(epochs=EpochCounts(counts.first, counts.steps, counts.anew)).parse(line.format(2, 0).encode())
    assert found == (200, {"loss": 0.5})
