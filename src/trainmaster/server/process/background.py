"""Background loops of the api. A loop survives errors: it logs the error, reports a trouble and retries later."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from trainmaster import troubles

FIRST_S, MOST_S = 1.0, 60.0  # retry delay after a failure: the first one, doubled each time up to the second
_log = logging.getLogger("trainmaster.api")


async def supervised(name: str, work: Callable[[], Awaitable[float | None]], wait_s: float = 0.0) -> None:
    """Run `work` after `wait_s`, then repeat it after the number of seconds that it returns; None ends the loop.

    `name` says what the loop does, for example "trimming the inbox".
    """
    again_s = FIRST_S
    while True:
        await asyncio.sleep(wait_s)
        try:
            next_s = await work()
        except Exception as error:  # noqa: BLE001  the loop must survive any error
            told = str(error) or type(error).__name__
            troubles.say(f"loop: {name}", f"{name} failed: {told}; it is tried again, at the latest every {MOST_S:.0f} s")
            _log.warning("%s failed: %s; again in %.0f s", name, told, again_s, exc_info=True)
            wait_s, again_s = again_s, min(2 * again_s, MOST_S)
            continue
        troubles.clear(f"loop: {name}")
        if next_s is None:
            return
        wait_s, again_s = next_s, FIRST_S
