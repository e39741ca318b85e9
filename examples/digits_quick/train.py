"""Digits without dependencies: a small neural network in plain Python, data parallel over any number of ranks.

The program contains no Trainmaster code. It reads torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), saves
a checkpoint every few steps, and resumes from the newest one. Its random numbers depend only on the step, so a resumed
run prints exactly the losses of an undisturbed run.
"""

import json
import math
import os
import random
import time
from array import array
from multiprocessing.connection import Client, Connection, Listener
from operator import mul
from pathlib import Path

STEPS = 400
BATCH = 80  # per rank
RATE = 0.8
SAVE_EVERY = 20
SEED = 20
OUT = Path("out")

PICTURES = """
.###. ..#.. .###. .###. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... #.... ....# #...# #...#
#...# ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#...# ..#.. ...#. ..##. #..#. ....# ####. ..#.. .###. .####
#...# ..#.. ..#.. ....# ##### ....# #...# ..#.. #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# ..#.. #...# ....#
.###. .###. ##### .###. ...#. .###. .###. ..#.. .###. .###.
"""
GLYPHS = PICTURES.split()
HIDDEN = 24
CLASSES, WIDTH, HEIGHT = 10, 7, 8
INPUTS = WIDTH * HEIGHT + 1  # the last one is always 1: the bias

Matrices = list[list[list[float]]]
Sample = tuple[list[float], int]


def sample(generator: random.Random) -> Sample:
    """A picture of a digit, shifted by up to one pixel, faint or bold, with noise; and its label."""
    digit = generator.randrange(CLASSES)
    right, down, ink = generator.randrange(3), generator.randrange(2), generator.uniform(0.5, 1.0)
    pixels = [generator.gauss(0.0, 0.11) for _ in range(INPUTS)]
    for row in range(7):
        for column, mark in enumerate(GLYPHS[row * CLASSES + digit]):
            if mark == "#":
                pixels[(row + down) * WIDTH + column + right] += ink
    pixels[-1] = 1.0
    return pixels, digit


def initial() -> Matrices:
    """Small random weights: the hidden layer, then the scores (each with a bias as its last column)."""
    generator = random.Random(f"{SEED}/weights")
    shapes = ((HIDDEN, INPUTS), (CLASSES, HIDDEN + 1))
    return [[[generator.gauss(0.0, columns**-0.5) for _ in range(columns)] for _ in range(rows)] for rows, columns in shapes]


def forward(weights: Matrices, pixels: list[float]) -> tuple[list[float], list[float]]:
    """The hidden layer's activations and the probability of each digit."""
    hidden = [math.tanh(sum(map(mul, row, pixels))) for row in weights[0]]
    hidden.append(1.0)
    scores = [sum(map(mul, row, hidden)) for row in weights[1]]
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    total = sum(powers)
    return hidden, [power / total for power in powers]


def gradient(weights: Matrices, batch: list[Sample]) -> array:
    """The gradient over a batch, flat, and the batch's loss as the last number."""
    sums = [[[0.0] * len(row) for row in matrix] for matrix in weights]
    loss = 0.0
    for pixels, digit in batch:
        hidden, errors = forward(weights, pixels)
        loss -= math.log(max(errors[digit], 1e-12))
        errors[digit] -= 1.0
        for k, error in enumerate(errors):
            sums[1][k] = [s + error * h for s, h in zip(sums[1][k], hidden, strict=True)]
        for j in range(HIDDEN):
            back = (1.0 - hidden[j] ** 2) * sum(error * row[j] for error, row in zip(errors, weights[1], strict=True))
            sums[0][j] = [s + back * p for s, p in zip(sums[0][j], pixels, strict=True)]
    flat = array("d", [value / len(batch) for matrix in sums for row in matrix for value in row])
    flat.append(loss / len(batch))
    return flat


def descend(weights: Matrices, change: array) -> None:
    """Move every weight against its gradient."""
    at = 0
    for matrix in weights:
        for row in matrix:
            row[:] = [w - RATE * c for w, c in zip(row, change[at : at + len(row)], strict=True)]
            at += len(row)


class Gang:
    """The ranks of this run. Rank 0 sums the vectors of all ranks, in the order of their numbers."""

    def __init__(self) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.peers: list[Connection] = []
        if self.size == 1:
            return
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if self.rank == 0:
            with Listener(address, backlog=self.size) as listener:
                met = [listener.accept() for _ in range(self.size - 1)]
            self.peers = [peer for _, peer in sorted(((int(p.recv_bytes()), p) for p in met), key=lambda pair: pair[0])]
        else:
            self.peers = [self.join(address)]
            self.peers[0].send_bytes(str(self.rank).encode())

    @staticmethod
    def join(address: tuple[str, int]) -> Connection:
        """Connect to rank 0, which may still be starting."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return Client(address)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def mean(self, own: array) -> array:
        """The mean over all ranks, the same on each."""
        if self.size == 1:
            return own
        if self.rank > 0:
            self.peers[0].send_bytes(own.tobytes())
            return array("d", self.peers[0].recv_bytes())
        parts = [own, *(array("d", peer.recv_bytes()) for peer in self.peers)]
        result = array("d", [sum(values) / self.size for values in zip(*parts, strict=True)])
        for peer in self.peers:
            peer.send_bytes(result.tobytes())
        return result


def newest() -> Path | None:
    """The checkpoint of the highest step, if there is one."""
    return max(OUT.glob("ckpt-*.json"), key=lambda path: int(path.stem.split("-")[1]), default=None)


def main() -> None:
    """Train, from the newest checkpoint if there is one."""
    gang = Gang()
    OUT.mkdir(exist_ok=True)
    step, weights = 0, initial()
    found = newest()
    if found is not None:
        saved = json.loads(found.read_text())
        step, weights = saved["step"], saved["weights"]
        if gang.rank == 0:
            print(f"going on after step {step} from {found}", flush=True)
    while step < STEPS:
        step += 1
        generator = random.Random(f"{SEED}/{step}/{gang.rank}")
        change = gang.mean(gradient(weights, [sample(generator) for _ in range(BATCH)]))
        descend(weights, change)
        if gang.rank > 0:
            continue
        print(f"step {step} loss {change[-1]:.6f}", flush=True)
        if step % SAVE_EVERY == 0:
            part = OUT / f"ckpt-{step}.json.part"
            part.write_text(json.dumps({"step": step, "weights": weights}))
            part.rename(OUT / f"ckpt-{step}.json")
    if gang.rank == 0:
        generator = random.Random(f"{SEED}/test")
        test = [sample(generator) for _ in range(1000)]
        right = sum(max(range(CLASSES), key=forward(weights, pixels)[1].__getitem__) == digit for pixels, digit in test)
        (OUT / "model.json").write_text(json.dumps({"weights": weights, "accuracy": right / len(test)}))
        print(f"accuracy={right / len(test):.3f}", flush=True)


if __name__ == "__main__":
    main()
