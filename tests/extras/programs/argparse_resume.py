"""Trains by epochs, keeps the latest and the best checkpoint, and goes on from the one named by `--resume`."""

import argparse
import os
import pickle
import shutil
import time

import numpy as np

parser = argparse.ArgumentParser(description="Linear regression")
parser.add_argument("--epochs", default=30, type=int, help="number of epochs to run in all")
parser.add_argument("--start-epoch", default=0, type=int, help="for restarts by hand")
parser.add_argument("--lr", default=0.02, type=float)
parser.add_argument("--resume", default="", type=str, metavar="PATH", help="the latest checkpoint")
parser.add_argument("--seed", default=3, type=int)


def main() -> None:
    args = parser.parse_args()
    truth = np.random.default_rng(args.seed)
    inputs = truth.normal(size=(256, 8))
    targets = inputs @ truth.normal(size=8)
    weights, best, draws = np.zeros(8), float("inf"), np.random.default_rng(args.seed)

    if args.resume:
        if os.path.isfile(args.resume):
            print(f"=> loading checkpoint '{args.resume}'")
            with open(args.resume, "rb") as file:
                saved = pickle.load(file)
            args.start_epoch, weights, best = saved["epoch"], saved["weights"], saved["best"]
            draws.bit_generator.state = saved["draws"]
            print(f"=> loaded checkpoint '{args.resume}' (epoch {saved['epoch']})")
        else:
            print(f"=> no checkpoint found at '{args.resume}'")

    loss = float("nan")
    for epoch in range(args.start_epoch, args.epochs):
        began = time.time()
        order = draws.permutation(len(inputs))
        for batch in range(8):
            rows = order[batch * 32 : batch * 32 + 32]
            error = inputs[rows] @ weights - targets[rows]
            weights = weights - args.lr * inputs[rows].T @ error / len(rows)
            time.sleep(0.03)  # in place of a larger model
        loss = float(np.mean((inputs @ weights - targets) ** 2))
        print(f"Epoch: [{epoch}]\tTime {time.time() - began:6.3f}\tLoss {loss:.4e}", flush=True)
        is_best, best = loss < best, min(loss, best)
        state = {"epoch": epoch + 1, "weights": weights, "best": best, "draws": draws.bit_generator.state}
        with open("checkpoint.pkl", "wb") as file:
            pickle.dump(state, file)
        if is_best:
            shutil.copyfile("checkpoint.pkl", "model_best.pkl")
    print(f"final loss {loss:.12e}")


if __name__ == "__main__":
    main()
