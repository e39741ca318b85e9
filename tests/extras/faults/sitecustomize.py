"""A training that waits to be killed: in its first attempt, at the report of step HOLD_AT.

Python imports this by its name at start when its directory is on PYTHONPATH.
"""

import os
import time

if os.environ.get("HOLD_AT") and os.environ.get("TRAINMASTER_ATTEMPT") == "1":
    from trainmaster.sdk import channel

    report_values = channel.report_values

    def holding(step, values):
        """Report, and stay there at the step."""
        report_values(step, values)
        while step == int(os.environ["HOLD_AT"]) and not channel.should_stop():
            time.sleep(0.05)

    channel.report_values = holding  # what `report` and the adapters call
