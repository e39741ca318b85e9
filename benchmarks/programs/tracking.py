"""Pairs of blocks of the same work, one with tracking at ten points a second and one without: wall seconds of each block.

`tracking.py HOW PAIRS BLOCK_S ANSWER [WHERE]`: HOW is print, sdk, mlflow or wandb. One call of ten values a second, or ten of
one for HOW `mlflow-singly`. The blocks of a pair are done in slices of at most half a second, in turns, since a machine shared
with others changes its speed within seconds; the process's time counts other threads that tracking keeps, a call's own time
those it waits for.
"""

import json
import os
import sys
import time
from collections.abc import Callable

EVERY_S = 1.0
SLICE_S = 0.5

Log = Callable[[int, dict[str, float]], None]


def work() -> int:
    """Some milliseconds of arithmetic."""
    value = 1
    for n in range(20_000):
        value = (value * 1103515245 + n) & 0x7FFFFFFF
    return value


def logger(how: str, where: str) -> Log:
    """What tells ten values, after one call that does not count."""
    if how == "print":
        return lambda step, values: print(f"step {step} " + " ".join(f"{name}={value}" for name, value in values.items()))
    if how == "sdk":
        from trainmaster import sdk  # noqa: PLC0415 - one of them is measured

        return lambda step, values: sdk.report(step=step, **values)
    if how.startswith("mlflow"):
        import mlflow  # noqa: PLC0415 - likewise

        if where:
            mlflow.set_tracking_uri(where)
        mlflow.start_run()
        if how == "mlflow":
            return lambda step, values: mlflow.log_metrics(values, step=step)
        return lambda step, values: [mlflow.log_metric(name, value, step=step) for name, value in values.items()] and None
    import wandb  # noqa: PLC0415 - likewise

    run = wandb.init(project="cost", mode="offline", dir=where, settings=wandb.Settings(silent=True))
    return lambda step, values: run.log(values, step=step)


def main() -> None:
    """Measure and write down."""
    how, pairs, block_s, answer, *where = sys.argv[1:]
    log = logger(how, where[0] if where else "")
    values = {f"metric{n}": 1.0 / (n + 1) for n in range(10)}
    step, calls, call_cpu = 1, [], []
    log(step, values)
    slice_s = min(SLICE_S, float(block_s) / 2)
    slices = max(2, round(float(block_s) / slice_s))
    began_s = time.perf_counter()
    for _ in range(50):
        work()
    rounds = max(1, round(slice_s / ((time.perf_counter() - began_s) / 50)))
    spent: dict[bool, list[float]] = {True: [], False: []}
    cpu: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(int(pairs)):
        wall_s, cpu_s = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}
        for n in range(slices):
            for tracks in (True, False) if n % 2 else (False, True):
                began_s, cpu_began_s = time.perf_counter(), time.process_time()
                for i in range(rounds):
                    work()
                    if tracks and i == rounds // 2 and n % round(EVERY_S / slice_s) == 0:
                        step += 1
                        called_s, call_cpu_s = time.perf_counter(), time.process_time()
                        log(step, values)
                        call_cpu.append(time.process_time() - call_cpu_s)
                        calls.append(time.perf_counter() - called_s)
                wall_s[tracks] += time.perf_counter() - began_s
                cpu_s[tracks] += time.process_time() - cpu_began_s
        for tracks in (True, False):
            spent[tracks].append(wall_s[tracks])
            cpu[tracks].append(cpu_s[tracks])
    told = {"with": spent[True], "without": spent[False], "cpu_with": cpu[True], "cpu_without": cpu[False]}
    told.update(calls=calls, call_cpu=call_cpu)
    with open(answer + ".part", "w") as file:
        json.dump(told, file)
    os.replace(answer + ".part", answer)


if __name__ == "__main__":
    main()
