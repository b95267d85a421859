"""``sweep top`` of a study that runs on this machine."""

from __future__ import annotations

import json

from tests.conftest import Sweep


def test_this_machine(finished: Sweep) -> None:
    """Its CPUs and memory; in words and for programs."""
    ran = finished("top", "--json")
    assert (ran.code, ran.err) == (0, "")
    seen = json.loads(ran.out)
    (machine,) = seen["nodes"]
    amounts = {one["name"]: one for one in machine["amounts"]}
    assert 0 <= amounts["cpus"]["free"] <= amounts["cpus"]["total"]
    assert 0 < amounts["memory"]["free"] <= amounts["memory"]["total"]
    assert seen["waiting"] == []
    assert finished("top").out.startswith(f"site: {seen['place']}, 1 of 1 node in service\n")
