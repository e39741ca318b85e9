"""The SDK: the program reports metrics and checkpoints directly, and nothing is read from its output.

It also runs outside a job: there `sdk` does nothing and returns defaults.
"""

import json
import random
from pathlib import Path

from trainmaster import sdk

SEED = 20


def restored() -> tuple[int, float, float]:
    """Step, slope and intercept of the restored checkpoint, if there is one."""
    directory = sdk.resume_dir()
    if directory is None:
        return 0, 0.0, 0.0
    saved = json.loads((directory / "state.json").read_text())
    return saved["step"], saved["slope"], saved["intercept"]


def main() -> None:
    """Fit y = 3x + 1 under noise by stochastic gradient descent."""
    params = sdk.params()
    rate, steps = params.get("lr", 0.05), params.get("steps", 300)
    step, slope, intercept = restored()
    while step < steps and not sdk.should_stop():
        step += 1
        generator = random.Random(f"{SEED}/{step}")
        x = generator.uniform(-1, 1)
        error = slope * x + intercept - (3 * x + 1 + generator.gauss(0, 0.1))
        slope -= rate * error * x
        intercept -= rate * error
        sdk.report(step=step, loss=error**2)
        if step % 50 == 0 or sdk.should_checkpoint():
            with sdk.checkpoint(step) as directory:
                Path(directory, "state.json").write_text(json.dumps({"step": step, "slope": slope, "intercept": intercept}))
    Path("line.json").write_text(json.dumps({"slope": slope, "intercept": intercept}))
    sdk.artifact("line.json")
    print(f"y = {slope:.2f} x + {intercept:.2f}")


if __name__ == "__main__":
    main()
