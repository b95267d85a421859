"""What a node reaches: the database, Slurm, other nodes. Facts → line, as in ``judge_node``."""

from __future__ import annotations

from sweep.control.check.lines import FAILED, NOT_ASKED, OK, WARNING, Fact, Line

SLOW_DATABASE_S = 0.25
ALSO_CONNECTED = 3  # beside the workers: the finaliser, a status, a launch


def database(fact: Fact) -> Line:
    """Judge whether the database can be reached from the node."""
    if fact.get("error"):
        hint = fact.get("hint") or "Can the nodes reach that host and port? Ask the site."
        return Line("database", FAILED, fact["error"], hint)
    if fact.get("embedded") and "latency_s" not in fact:
        return Line(
            "database",
            NOT_ASKED,
            "the embedded server starts at launch; its programs run here "
            f"(PostgreSQL {fact['version']})",
        )
    latency_ms = 1e3 * fact["latency_s"]
    text = f"{fact['where']}: PostgreSQL {fact['version']}, answers in {latency_ms:.1f} ms"
    if fact["latency_s"] > SLOW_DATABASE_S:
        return Line(
            "database",
            WARNING,
            f"{text}: slow",
            "Use a server nearer to the nodes; each pull takes a few questions.",
        )
    return Line("database", OK, text)


def connections(fact: Fact, workers: int, *, is_cap: bool) -> Line:
    """Judge the database's connections against K: each worker holds one.

    Args:
        workers: Trials that run at once, at most.
        is_cap: Whether the study says so; else fewer may run.
    """
    name = "connections"
    if "max_connections" not in fact:
        return Line(name, NOT_ASKED, "the database was not asked")
    limits = {
        f"max_connections is {fact['max_connections']}, {fact['reserved']} reserved": fact[
            "max_connections"
        ]
        - fact["reserved"]
        - fact["used"]
    }
    if fact["role_limit"] >= 0:
        limits[f"your role may have {fact['role_limit']}"] = fact["role_limit"]
    if fact["database_limit"] >= 0:
        limits[f"the database takes {fact['database_limit']}"] = fact["database_limit"]
    why, room = min(limits.items(), key=lambda pair: pair[1])
    need = workers + ALSO_CONNECTED
    text = f"{need} needed for {workers} trials at once, {max(0, room)} free ({why}, "
    text += f"{fact['used']} in use)"
    if need <= room:
        return Line(name, OK, text)
    lower = max(1, room - ALSO_CONNECTED)
    return Line(
        name,
        FAILED if is_cap else WARNING,
        text,
        f"Write max_parallel: {lower}, or have the server's limit raised to {need + fact['used']} "
        "or more.",
    )


def slurm_commands(fact: Fact) -> list[Line]:
    """Judge whether Slurm's programs can be called from the node."""
    lines = []
    if fact["scontrol"]:
        lines.append(
            Line(
                "scontrol",
                FAILED,
                f"cannot be called from the node: {fact['scontrol']}",
                "Tasks ask Slurm about each other with it: add Slurm's programs to PATH in "
                "slurm.setup, or ask the site for them on the nodes.",
            )
        )
    else:
        lines.append(Line("scontrol", OK, "can be called from the node"))
    chain = (
        "`sweep launch` then queues all waves beforehand; what they leave needs another "
        "`sweep launch`. Ask the site to admit the nodes (AllocNodes of the partition)."
    )
    if fact["sbatch"]:
        lines.append(
            Line(
                "sbatch",
                FAILED,
                f"the node may not submit: {fact['sbatch']}",
                f"{fact.get('hint') or ''} {chain}".strip(),
            )
        )
    elif not fact["may_submit"]:
        lines.append(
            Line("sbatch", FAILED, "AllocNodes of the partition leaves out its nodes", chain)
        )
    else:
        lines.append(Line("sbatch", OK, "the node may submit"))
    if "preemption" in fact:
        lines.append(preemption(fact["preemption"]))
    return lines


def preemption(fact: Fact) -> Line:
    """Judge how long before its end a training hears of a preemption."""
    mode, grace_s, wait_s = fact["mode"], fact["grace_time_s"], fact["kill_wait_s"]
    if not mode:
        return Line("preemption", OK, "tasks are not preempted here")
    if mode == "SUSPEND":
        return Line("preemption", OK, "tasks are suspended, and go on later")
    does = {"REQUEUE": "requeues", "CANCEL": "cancels"}[mode]
    if grace_s and fact["signals"]:
        return Line(
            "preemption",
            OK,
            f"Slurm {does} tasks: training hears of it {grace_s} s before (GraceTime)",
        )
    hears = f"Slurm {does} tasks: training hears of it {wait_s} s before SIGKILL (KillWait)"
    if not grace_s:
        return Line("preemption", OK, hears)
    return Line(
        "preemption",
        WARNING,
        f"{hears}, not when the GraceTime of {grace_s} s begins",
        "Ask the site for PreemptParameters=send_user_signal (before Slurm 23.11: "
        "SlurmctldParameters=preempt_send_user_signal), or save checkpoints often.",
    )


def task_signal(fact: Fact) -> Line:
    if fact["came"]:
        return Line("task signal", OK, f"Slurm's reaches sweep in {fact['after_s']:.1f} s")
    return Line(
        "task signal",
        FAILED,
        "USR1, Slurm's signal before the time limit, does not reach sweep",
        "A task.sh.j2 of your own must `exec` sweep (see: sweep templates); without the signal "
        "trials are not told to save before the limit.",
    )


def interface(fact: Fact, nodes: int) -> Line:
    """Judge the network interface that ranks are to talk by."""
    known = ", ".join(f"{name} {address}".rstrip() for name, address in fact["addresses"].items())
    if fact["missing"]:
        return Line(
            "interface",
            FAILED,
            f"{fact['host']} has no interface {', '.join(fact['missing'])}; it has {known}",
            "Set ddp.interface to the one by which the nodes reach each other, or leave it out.",
        )
    if fact["wanted"]:
        return Line("interface", OK, f"{fact['wanted']} is there ({known})")
    if nodes == 1:
        return Line("interface", NOT_ASKED, "a trial stays on one node")
    return Line("interface", OK, f"gloo and NCCL choose among {known}")


def ports(fact: Fact) -> Line:
    """Judge the range of ports at which ranks may meet."""
    low, high, free = fact["low"], fact["high"], fact["free"]
    text = f"{free} of {fact['asked']} asked from {low} to {high} are free"
    wider = "Name another range that your site leaves to users: ddp.port_range."
    if not free:
        return Line("ports", FAILED, f"none from {low} to {high} is free on this node", wider)
    if free * 10 < fact["asked"]:
        return Line("ports", WARNING, text, wider)
    return Line("ports", OK, text)
