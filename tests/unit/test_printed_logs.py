"""What is read from lines as people paste them of public programs' logs: positions in epochs, names, tables."""

import pytest

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
}


@pytest.mark.parametrize("name", RUNS)
def test_the_lines_of_a_run(name: str) -> None:
    parser = Parser()
    for line, read in RUNS[name]:
        assert parser.parse(line.encode()) == read, line
