"""sinfo: whether nodes are well."""

from __future__ import annotations

import re

# Words of %T in sinfo(1). A star behind one means that the node does not answer; the other signs
# (~ # ! % $ @ ^ -) that it is powered or rebooted: none proves that what ran there has ended.
WELL = frozenset(["allocated", "completing", "idle", "mixed"])


def node_states_argv(nodes: str, sinfo: str = "sinfo") -> list[str]:
    """Return the command line that asks for the states of nodes, a line each and partition."""
    return [sinfo, "-h", "-N", "-n", nodes, "-o", "state=%T"]


def are_well(stdout: str) -> bool:
    """Tell whether all nodes of an answer are in service and reply; an empty one says no."""
    states = re.findall(r"^state=(\S+)", stdout, re.MULTILINE)  # other lines: a site's banner
    return bool(states) and all(state in WELL for state in states)
