"""A real Slurm cluster on one machine, for tests and for people (``python -m tests.cluster``)."""

from __future__ import annotations

# What `make test` runs of these tests: one of each thing that a cluster can do to a study.
DAILY = {
    "test_launch.py": {"test_from_launch_to_the_winner_run_again"},
    "test_faults.py": {
        "test_each_task_meets_another_fault",
        "test_lost_finaliser_is_submitted_again",
    },
    "test_faults_beside.py": {"test_preemption", "test_time_limit_with_grace"},
    "test_limits.py": {"test_max_array_size", "test_waves_follow_each_other"},
    "test_slots.py": {"test_a_whole_node_serves_four_trials_at_once"},
    "test_containers.py": {"test_a_user_trains_in_an_image[slurm-sandbox]"},
}
# Those on a cluster with proctrack/cgroup.
WITH_CGROUPS = {"test_memory_limit_kills", "test_out_of_memory", "test_out_of_memory_in_a_slot"}
WITH_CGROUPS |= {"test_out_of_host_memory_blames_nobody"}


def is_daily(nodeid: str) -> bool:
    """Tell whether a test of this folder runs in `make test` as well."""
    path, _, name = nodeid.partition("::")
    names = DAILY.get(path.rpartition("/")[2], set())
    return name in names or name.partition("[")[0] in names
