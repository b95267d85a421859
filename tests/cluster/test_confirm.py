"""``sweep confirm`` on a real cluster: one array, each element its own run."""

from __future__ import annotations

import json

from tests.cluster.test_launch import FROM_OUTPUT, train, user  # noqa: F401
from tests.cluster.user import User


def test_confirm_is_one_array(user: User) -> None:  # noqa: F811
    """Four runs in one array, two at a time; each trial's values are those of its own runs."""
    path = user.study("sure", train(0.1), objective=FROM_OUTPUT, trials=3, max_parallel=2)
    user.sweep("launch", path, "--wait", timeout_s=300)
    done = user.sweep("confirm", "--top", "2", "--seeds", "2", "--wait", "--json", timeout_s=300)
    found = json.loads(done.stdout)
    assert [entry["values"] for entry in found["trials"]] == [
        [entry["search_value"]] * 2 for entry in found["trials"]
    ]  # this training ignores its seed, which is said
    assert (found["seed_is_ignored"], found["distinguishable"]) == (True, True)
    assert user.status("sure")["counts"]["complete"] == 3
