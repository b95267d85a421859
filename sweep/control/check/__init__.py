"""What would fail on a node, said before an array is submitted.

``facts`` asks this machine, ``inside`` asks within the training's environment, ``judge_node``,
``judge_services`` and ``judge_training`` say what the answers mean; ``node_task`` is what asks on a
node, ``on_node`` submits it and waits, and ``quick`` is the half that launch asks each time.
"""

from sweep.control.check.lines import FAILED, NOT_ASKED, OK, WARNING, Line, has_failed, table

__all__ = ["FAILED", "NOT_ASKED", "OK", "WARNING", "Line", "has_failed", "table"]
