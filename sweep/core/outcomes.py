"""The states of a trial, and how an attempt may have ended."""

from __future__ import annotations

# What users see. Optuna's FAIL is "failed" or "cancelled": the trial's end tells which.
WAITING = "waiting"
RUNNING = "running"
COMPLETE = "complete"
PRUNED = "pruned"
FAILED = "failed"
CANCELLED = "cancelled"
STATES = (WAITING, RUNNING, COMPLETE, PRUNED, FAILED, CANCELLED)
FINAL_STATES = (COMPLETE, PRUNED, FAILED, CANCELLED)

# Outcomes of an attempt. A live attempt has none.
FINISHED = "finished"  # its trial is final: complete, pruned or diverged
ERROR = "error"  # the user's code ended with an error
NO_METRIC = "no metric"  # ended well, but never reported the objective
NEVER_REPORTED = "ended well, but never reported"  # as its reason begins; the metric's name follows
DIVERGED = "diverged"  # the objective is not a finite number
INTERRUPTED = "interrupted"  # asked to leave, and not by its time limit: preemption, stop
TERMINATED = "terminated"  # left after a SIGTERM of the cluster's; who sent it is asked later
TIMEOUT = "timeout"  # its task's time limit: it left before it, or was ended by it
KILLED = "killed"  # SIGKILL or SIGTERM that sweep did not send
OUT_OF_MEMORY = "out of memory"
CROWDED = "out of shared memory"  # the same beside others on its GPU: it goes on alone
FAULTED = "fault on a shared GPU"  # under MPS, which does not say whose it was: it goes on alone
PORT_CLASH = "port clash"  # its ranks found their port taken, or another trial's ranks there
NODE_FAILED = "node failed"
LOST = "lost"  # its task is gone and nobody can say why
STALLED = "stalled"  # no sign of progress for longer than the study allows
TOO_LONG = "too long"  # the trial used up its own time without reporting its objective
NOT_STARTED = "not started"  # the command could not be started
EXHAUSTED = "exhausted"  # out of attempts, and no trial of the study has reported anything yet
STOPPED = "cancelled"  # the user cancelled it

# Outcomes after which the trial goes on as its next attempt, from its checkpoint.
RESUMABLE = (
    *(INTERRUPTED, TIMEOUT, KILLED, OUT_OF_MEMORY, CROWDED),
    FAULTED,
    *(PORT_CLASH, NODE_FAILED, LOST, STALLED),
)
# Those of them that count towards retry.max_attempts whatever was saved.
FAULTS = (KILLED, OUT_OF_MEMORY, PORT_CLASH, LOST, STALLED)


# An attempt's end after which the trial may be claimed again. A failure of the user's code counts
# while the study is unproven, because launch gives such trials back once the code is corrected.
GIVEN_BACK = "given back"
# Went on from a checkpoint and failed by its own error before it reported anything: the next
# attempt takes an older one.
RESUME_FAILED = "resume failed"
# A launch's --retry took back what the trial had come to: the next attempt is the first of a new
# count, and begins from nothing, or (the second) from the newest checkpoint.
RETRIED = "retried"
RETRIED_RESUMING = "retried, resuming"
RETRIES = (RETRIED, RETRIED_RESUMING)
# A training of a trial with several (``replicates``) has ended well, and the trial needs further
# ones: the next attempt is the first of the next one, and begins from nothing.
REPLICATED = "replicate done"
HALTED = "halted"  # left because the study was stopped or ended
PAUSED = "paused"  # its trial waits for a promotion
CLAIMABLE = (*RESUMABLE, GIVEN_BACK, RESUME_FAILED, HALTED, *RETRIES, REPLICATED)
# Where what came before counts no more: neither towards limits nor, but for a retry that resumes,
# as something to go on from.
BEGUN_ANEW = (*RETRIES, REPLICATED)
USER_FAILURES = (ERROR, NO_METRIC, NOT_STARTED, TOO_LONG, EXHAUSTED)
# Those of them that say that the configuration asks for too much, not that the command is wrong.
TOO_MUCH = (TOO_LONG, EXHAUSTED)
