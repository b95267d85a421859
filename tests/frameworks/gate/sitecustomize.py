"""Lets a test hold a training at a step: on the training's PYTHONPATH, no line of it knows.

After a report of the objective at step N the reporter waits while the file ``$GATE/hold-N`` exists;
so a test can act at a known moment, however slow the machine is.
"""

import os
import time

import sweep.report

_log = sweep.report.Reporter.log


def log(self, step=None, metrics=None, **more):
    """Report, and wait at the gate."""
    result = _log(self, step, metrics, **more)
    if os.environ["GATE_METRIC"] not in {**(metrics or {}), **more}:
        return result  # of several reports of a step, the objective's counts
    hold = os.path.join(os.environ["GATE"], f"hold-{step}")
    while os.path.exists(hold):
        time.sleep(0.02)
    return result


if os.environ.get("GATE"):
    sweep.report.Reporter.log = log
