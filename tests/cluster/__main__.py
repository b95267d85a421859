"""A Slurm cluster for a person: ``python -m tests.cluster up | down | shell | status``."""

from __future__ import annotations

import argparse
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster.cluster import Cluster, Missing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("action", choices=["up", "down", "shell", "status"])
    parser.add_argument("--root", type=Path, default=Path("/tmp/sweep-cluster"))
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--proctrack", choices=["linuxproc", "cgroup"], default="linuxproc")
    parser.add_argument("--base-port", type=int, help="chosen free by default")
    parser.add_argument("--user", help="who the shell runs as (default: the cluster's own user)")
    options = parser.parse_args()
    cluster = Cluster(options.root, options.nodes, options.proctrack, options.base_port)
    try:
        return act(cluster, options.action, options.user)
    except Missing as missing:
        print(f"No Slurm cluster here; missing: {missing}.", file=sys.stderr)
        return 1


def act(cluster: Cluster, action: str, user: str | None) -> int:
    """Do one action; return the exit code."""
    is_up = bool(cluster.running())
    if action == "status":
        dead = [name for name in cluster.daemons if name not in cluster.running()]
        print(f"{cluster.root}: " + ("down" if not is_up else f"up, dead: {dead or 'none'}"))
        if is_up:
            print(cluster.run("sinfo; squeue").stdout, end="")
        return 0 if is_up and not dead else 1
    if action == "down":
        cluster.down()
        return 0
    if not is_up:
        begin = time.monotonic()
        cluster.up()
        print(f"Slurm is up in {cluster.root} after {time.monotonic() - begin:.0f} s.")
    if action == "up":
        print(f"export SLURM_CONF={cluster.root}/etc/slurm.conf   # user: {cluster.user}")
        return 0
    return open_shell(cluster, user or cluster.user, ours=not is_up)


def open_shell(cluster: Cluster, user: str, ours: bool) -> int:
    """Run an interactive shell on the cluster; take down at its end what was brought up for it."""
    account = pwd.getpwnam(user)
    print(f"A shell as {user}; partitions main, gpu, short, preempt, preemptc, high.", flush=True)
    environment = {
        **cluster.env(user),
        "TERM": os.environ.get("TERM", "dumb"),
        "PS1": f"[slurm {user}] \\w$ ",
    }
    try:
        return subprocess.run(
            ["bash", "--norc", "-i"],
            env=environment,
            cwd=cluster.home,
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[] if account.pw_uid else None,
            check=False,
        ).returncode
    finally:
        if ours:
            cluster.down()


if __name__ == "__main__":
    sys.exit(main())
