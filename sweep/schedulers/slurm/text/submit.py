"""sbatch: its command line, and what it answered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sweep.core.durations import format_time
from sweep.core.errors import InputError
from sweep.schedulers.slurm.text.answers import did_not_answer, judged, strip_words
from sweep.schedulers.slurm.text.extra import check_extra

_TOKEN = r"[A-Za-z0-9_.-]{1,200}"
_GPUS = r"(?:(?P<bare>\d+)|(?P<type>\w[\w.+-]*)(?::(?P<count>\d+))?)"
_PARSABLE = r"\s*(?P<job>\d+)(?:;(?P<cluster>[\w.-]+))?\s*"
_SUBMITTED = r"Submitted batch job (?P<job>\d+)(?: on cluster (?P<cluster>[\w.-]+))?"
_REFUSED = r"(?im)^sbatch: (?:error|fatal|unrecognized|invalid)|submission failed"
_LIMIT = r"(?i)MaxSubmit|MaxJobs?|GrpSubmit|GrpJobs|violates accounting/QOS"
_ERROR = r"(?mi)^sbatch: (?!info)|error|failed|QOS|Assoc|Invalid|unrecogni[sz]ed"


@dataclass(frozen=True)
class ArrayRequest:
    """An array of tasks, or with ``size`` None one plain job, as sbatch is to get it.

    Args:
        token: Name token: the job's name, by which it is found again.
        script: Path of the batch script.
        log_pattern: Path of the logs in sbatch's notation, with ``%A`` and ``%a`` (``%j`` for a
            plain job); both outputs go there.
        size: Tasks in the array, with indices from 0.
        throttle: Tasks that run at once, at most; None for no cap.
        time_limit_s: A task's limit, which Slurm rounds up to minutes; None for the partition's
            default.
        grace_s: USR1 comes to the batch process so long before the limit; None for no signal.
        dependency: As sbatch takes it, such as ``afterany:123``.
        needs_dependency: Whether Slurm cancels it once its dependency can no longer hold; else it
            would wait for ever.
        partition: One partition, or several divided by commas.
        nodes: Nodes of a task.
        tasks_per_node: Processes that a plain ``srun`` starts on each node.
        gpus: GPUs per node: a count, ``type:count``, or a type (a MIG profile, say) for one.
        shard: Shares of a GPU.
        mps: Percentage of a GPU, by MPS.
        cpus: CPUs of each process.
        memory_mb: Memory per node in MiB.
        exclude: Nodes to stay away from, those that ``extra`` names too.
        nodelist: Nodes to use.
        mail: Whether Slurm sends a mail when the job has ended; an address: to that one.
        extra: The user's further options, unchecked.
    """

    token: str
    script: str
    log_pattern: str
    size: int | None = None
    throttle: int | None = None
    time_limit_s: int | None = None
    grace_s: int | None = None
    requeue: bool = True
    dependency: str | None = None
    needs_dependency: bool = False
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    nodes: int = 1
    tasks_per_node: int = 1
    gpus: int | str | None = None
    shard: int | None = None
    mps: int | None = None
    cpus: int | None = None
    memory_mb: int | None = None
    constraint: str | None = None
    reservation: str | None = None
    exclusive: bool = False
    exclude: Sequence[str] = ()
    nodelist: Sequence[str] = ()
    chdir: str | None = None
    arguments: Sequence[str] = ()
    mail: bool | str = False
    extra: Sequence[str] = ()


@dataclass(frozen=True)
class SbatchAnswer:
    """What became of a submission: exactly one of submitted, refused, unclear.

    Attributes:
        kind: ``submitted``, ``refused`` (nothing is queued) or ``unclear`` (look for the token).
        job: The job's id when submitted.
        cluster: The cluster's name, where sbatch printed it.
        words: Slurm's own words when refused or unclear.
        over_limit: Refused because too much was asked at once: shrink the wave, or wait.
    """

    kind: str
    job: str = ""
    cluster: str = ""
    words: str = ""
    over_limit: bool = False


def sbatch_argv(request: ArrayRequest, sbatch: str = "sbatch") -> list[str]:
    """Return the command line that submits a request.

    The array stands on the command line, because a variable beats what a script says.

    Raises:
        InputError: the user's further options hold one that sweep owns, or a value that Slurm
            would misread.
    """
    argv = [sbatch, "--parsable", f"--job-name={_check_token(request.token)}"]
    if request.size is not None:
        argv.append(f"--array={_array(request.size, request.throttle)}")
    argv += [f"--output={request.log_pattern}", "--open-mode=append"]
    argv.append("--requeue" if request.requeue else "--no-requeue")
    if request.time_limit_s is not None:
        argv.append(f"--time={format_time(request.time_limit_s)}")
    if request.grace_s:
        # B: the batch process alone; steps get theirs from it. 65535 is sbatch's maximum.
        argv.append(f"--signal=B:USR1@{min(request.grace_s, 65535)}")
    if request.needs_dependency:
        argv.append("--kill-on-invalid-dep=yes")
    argv += _asked_for(request)
    if request.mail:
        argv.append("--mail-type=END,FAIL")
    if isinstance(request.mail, str):
        argv.append(f"--mail-user={request.mail}")
    argv += _extra(request)
    return [*argv, request.script, *request.arguments]


def srun_argv(request: ArrayRequest, *, is_terminal: bool, srun: str = "srun") -> list[str]:
    """Return what runs one process of one job with what a request asks for, and waits for it.

    Args:
        is_terminal: Whether the process gets this terminal.

    Raises:
        InputError: As ``sbatch_argv``.
    """
    argv = [srun, f"--job-name={_check_token(request.token)}"]
    if request.time_limit_s is not None:
        argv.append(f"--time={format_time(request.time_limit_s)}")
    return [*argv, *_asked_for(request), *_extra(request), *["--pty"] * is_terminal]


def _extra(request: ArrayRequest) -> list[str]:
    found = check_extra(request.extra)
    # Behind the user's own, which it replaces.
    return [*found, f"--exclude={','.join(request.exclude)}"] if request.exclude else found


def _asked_for(request: ArrayRequest) -> list[str]:
    """Return the options that say where a job runs and what it holds there."""
    argv = []
    for name, value in (
        ("dependency", request.dependency),
        ("partition", request.partition),
        ("account", request.account),
        ("qos", request.qos),
        ("constraint", request.constraint),
        ("reservation", request.reservation),
        ("nodelist", ",".join(request.nodelist)),
        ("chdir", request.chdir),
    ):
        if value:
            argv.append(f"--{name}={value}")
    # Without --ntasks a node with hyperthreads starts two copies under srun.
    ntasks = request.nodes * request.tasks_per_node
    argv += [f"--nodes={request.nodes}", f"--ntasks={ntasks}"]
    if request.nodes > 1:
        argv.append(f"--ntasks-per-node={request.tasks_per_node}")
    if request.cpus is not None:
        argv.append(f"--cpus-per-task={request.cpus}")
    if request.memory_mb is not None:
        argv.append(f"--mem={request.memory_mb}M")
    if gres := _gres(request):
        argv.append(f"--gres={gres}")
    if request.exclusive:
        argv.append("--exclusive")
    return argv


def parse_sbatch(stdout: str, stderr: str, returncode: int) -> SbatchAnswer:
    """Read what sbatch answered, also behind wrappers and banners.

    A job id counts when sbatch succeeded and printed exactly one. Whatever leaves room for doubt
    is ``unclear``, to be settled by looking for the name token: sbatch can say "Socket timed out"
    although the job got in.
    """
    found = {match["job"]: match["cluster"] or "" for match in re.finditer(_SUBMITTED, stdout)}
    if not found:
        lines = (re.fullmatch(_PARSABLE, line) for line in stdout.splitlines())
        found = {match["job"]: match["cluster"] or "" for match in lines if match}
    words = strip_words("\n".join(_pick_errors(stderr)))
    if returncode == 0 and len(found) == 1:
        ((job, cluster),) = found.items()
        return SbatchAnswer("submitted", job, cluster)
    if returncode == 0 or found:
        shown = words or strip_words(stdout) or "nothing"
        return SbatchAnswer("unclear", words=f"exit code {returncode}, and it printed: {shown}")
    if did_not_answer(stderr, returncode) or (returncode > 128 and returncode != 255):
        return SbatchAnswer("unclear", words=words or f"exit code {returncode}")
    if returncode in (126, 127) or re.search(_REFUSED, stderr):
        words = words or strip_words(stderr) or f"exit code {returncode}"
        return SbatchAnswer(
            "refused", words=words, over_limit=bool(re.search(_LIMIT, judged(stderr)))
        )
    shown = words or strip_words(stderr) or strip_words(stdout) or "nothing"
    return SbatchAnswer("unclear", words=f"exit code {returncode}, and it printed: {shown}")


def explain_refusal(words: str) -> str:
    """Return what to do about a refusal, empty where Slurm's own words must do."""
    for pattern, advice in (
        ("MaxSubmit|GrpSubmit", "So many tasks may not be queued at once; fewer per wave fit."),
        (
            "access/permission denied",
            "This machine, or you, may not submit there; see AllocNodes "
            "and AllowGroups in: scontrol show partition.",
        ),
        ("invalid partition", "Choose slurm.partition from those that sinfo lists."),
        ("account", "Choose slurm.account from: sacctmgr show assoc user=$USER format=account."),
        ("qos", "Choose slurm.qos from: sacctmgr show assoc user=$USER format=account,qos."),
        ("array specification", "The array is larger than MaxArraySize allows."),
        ("memory specification", "Ask for less in resources.memory: no node has as much."),
        ("node configuration", "No node has all of it at once; compare resources with: sinfo -Nl."),
        ("gres|generic resource", "Compare resources.gpus with: sinfo -o '%N %G'."),
        ("feature", "Choose slurm.constraint from: sinfo -o '%N %f'."),
        ("reservation", "Compare slurm.reservation with: scontrol show reservation."),
        ("time limit|timelimit", "Ask for less in resources.time; see: sinfo -o '%P %l'."),
        ("unrecogni[sz]ed option", "This sbatch lacks an option of slurm.extra."),
    ):
        if re.search(pattern, words, re.IGNORECASE):
            return advice
    return ""


def _check_token(token: str) -> str:
    if not re.fullmatch(_TOKEN, token):
        raise InputError(f"{token!r} cannot be a job's name token: letters, digits, _ . - only.")
    return token


def _array(size: int, throttle: int | None) -> str:
    # sbatch takes %0 and an empty --array without a word: as no cap, and as no array.
    if size < 1 or (throttle is not None and throttle < 1):
        raise InputError(f"An array of {size} tasks, {throttle} at once, cannot be submitted.")
    return f"0-{size - 1}" + ("" if throttle is None else f"%{throttle}")


def _gres(request: ArrayRequest) -> str:
    parts = []
    if request.gpus:
        found = re.fullmatch(_GPUS, str(request.gpus))
        if not found:
            raise InputError(
                f"resources.gpus: {request.gpus!r} is no GPU request.",
                'Write a count (2), or a type and a count ("a100:2").',
            )
        count = found["bare"] or found["count"] or "1"
        parts.append(f"gpu:{found['type']}:{count}" if found["type"] else f"gpu:{count}")
    if request.shard:
        parts.append(f"shard:{request.shard}")
    if request.mps:
        parts.append(f"mps:{request.mps}")
    return ",".join(parts)


def _pick_errors(stderr: str) -> list[str]:
    """Return the lines of stderr that are sbatch's, or all of them where none is."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    return [line for line in lines if re.search(_ERROR, line)] or lines
