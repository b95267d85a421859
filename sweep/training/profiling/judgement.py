"""From symptoms to a cause, and from that to a remedy: what holds a training back.

A pure function, so that its cases stand in a table. It names one cause, the one that comes first
among those that the evidence bears; where the evidence bears none it says what would tell. A share
that training reports itself counts before what stacks say, and that before what can be concluded
from processes.

    waiting for the file system   its waits are for a disk, and at least half of what its loader
                                  takes
    loader-bound                  a fifth of the time and more goes into the next batch
    communication-bound           a fifth and more into exchanges between ranks
    memory-bound                  a GPU's memory is at work whenever the GPU is; or pages come back
                                  from a disk while the memory is full
    launch-bound                  GPUs wait for a busy thread that does not load; on CPUs, one
                                  thread works and the other cores do not
    small batch                   GPUs are never idle and yet draw half their power, and have room
    computing                     none of these: the devices are at work
    short of CPUs                 a thread that could run has no CPU for a third of the time
    not known                     the evidence bears none of them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.core.sizes import byte_text
from sweep.training.profiling.symptoms import Symptoms

FILES, LOADER, COMMUNICATION, MEMORY, LAUNCH, BATCH, COMPUTING, CPUS, NOT_KNOWN = CAUSES = (
    "waiting for the file system",
    "loader-bound",
    "communication-bound",
    "memory-bound",
    "launch-bound",
    "small batch",
    "computing",
    "short of CPUs",
    "not known",
)
REMEDIES = {
    FILES: "Put the data on the node (data: {NAME: {path: …, stage: node}}), or into few large "
    "files (sweep data shard); write less often to shared storage.",
    LOADER: "More loading processes (num_workers, and cpus for them), prefetching and pinned "
    "memory; what is the same each time computed once, beforehand; batches made on the GPU.",
    COMMUNICATION: "More work between two exchanges (larger batches, accumulated gradients), fewer "
    "or smaller exchanges (bucketing, bf16 gradients), a faster network (ddp.interface, ddp.ib), "
    "or fewer ranks a trial.",
    MEMORY: "Fewer bytes to move: bf16 or 8 bits, fused operations (torch.compile, flash "
    "attention), channels_last; where a node's own memory is short, more of it (memory) or fewer "
    "loading processes.",
    LAUNCH: "Fewer and larger operations: a larger batch, torch.compile, CUDA graphs, fused "
    "optimizers (foreach, fused), no .item() or print in each step.",
    BATCH: "A larger batch; or several trials on each GPU (resources: {gpus: 1, share: auto}).",
    COMPUTING: "Faster devices or more of them (sweep scaling says what they give), lower "
    "precision, or a smaller model.",
    CPUS: "More CPUs for each trial (resources.cpus), fewer trials side by side, or fewer threads "
    "(OMP_NUM_THREADS).",
}
LEAST_LOOKS = 20
HOLDS = 0.2  # a share that is worth mending
WAITS = 0.5  # without stacks: waits that loading processes may explain
BUSY_THREAD = 0.8  # of a CPU
FEW_CORES = 1.3  # so many are at work where one thread is
IDLE_GPU, BUSY_GPU = 0.7, 0.8
BUSY_MEMORY = 0.7
LITTLE_POWER, LITTLE_MEMORY = 0.5, 0.3
BUSY_CPUS = 0.7
DELAYED = 0.33
FULL, FAULTS_S = 0.95, 10.0

MORE = (
    "pip install 'sweep-hpo[profile]' brings py-spy, which sees what a training waits for; or have "
    "training report share_data and share_communication"
)


@dataclass(frozen=True)
class HoldsBack:
    """What holds a training back.

    Attributes:
        cause: One of CAUSES.
        evidence: What says so, in sentences.
        remedy: What would help.
    """

    cause: str
    evidence: Sequence[str] = field(default_factory=tuple)
    remedy: str = ""

    def to_data(self) -> dict[str, Any]:
        return {"cause": self.cause, "evidence": list(self.evidence), "remedy": self.remedy}

    @property
    def sentence(self) -> str:
        """All of it in one line."""
        parts = [f"{self.cause}: {'; '.join(self.evidence)}.", self.remedy]
        return " ".join(part for part in parts if part)


def judge(seen: Symptoms) -> HoldsBack:
    """Return what holds a training back, its evidence, and what would help."""
    if seen.looks < LEAST_LOOKS:
        said = f"it was looked at {seen.looks} times in {seen.seen_s:.0f} s, which is too little"
        return HoldsBack(NOT_KNOWN, (said,), "Profile for longer: sweep profile --time 120.")
    for cause, find in _RULES:
        if evidence := find(seen):
            return HoldsBack(cause, tuple(evidence), REMEDIES[cause])
    return HoldsBack(NOT_KNOWN, tuple(_what_was_seen(seen)), _what_would_tell(seen))


def share_of_data(seen: Symptoms) -> float | None:
    """Return the loader's share of the time; None where nothing says it."""
    return seen.own_data if seen.own_data is not None else _of_stacks(seen, seen.stack_data)


def share_of_communication(seen: Symptoms) -> float | None:
    """Return the share of exchanges between ranks; 0 of one rank, None where nothing says it."""
    if seen.own_communication is not None:
        return seen.own_communication
    return 0.0 if seen.ranks < 2 else _of_stacks(seen, seen.stack_communication)


def _of_stacks(seen: Symptoms, share: float | None) -> float | None:
    return share if seen.stack_looks >= LEAST_LOOKS else None


def _says(seen: Symptoms, own: float | None) -> str:
    return "as it reports itself" if own is not None else f"in {seen.stack_looks} of py-spy's looks"


def _files(seen: Symptoms) -> list[str]:
    share = seen.files
    if share is None or share < HOLDS or share < (share_of_data(seen) or 0.0) / 2:
        return []
    if share < (share_of_communication(seen) or 0.0):
        return []
    return [f"{share:.0%} of the time it waits for a disk or a file system", *_traffic(seen)]


def _loader(seen: Symptoms) -> list[str]:
    share = share_of_data(seen)
    if share is None:
        return _loading_processes(seen)
    if share < HOLDS or share < (share_of_communication(seen) or 0.0):
        return []
    said = [f"{share:.0%} of the time goes into the next batch, {_says(seen, seen.own_data)}"]
    return [*said, *_processes(seen), *_gpu(seen), *_traffic(seen)]


def _loading_processes(seen: Symptoms) -> list[str]:
    """Say that it waits for its loaders, where only the processes can be seen."""
    if share_of_communication(seen) != 0.0 or seen.main_waits is None or not seen.loaders:
        return []
    gpus_wait = seen.gpu_busy is None or seen.gpu_busy < IDLE_GPU
    is_fed = (seen.loader_cores or 0.0) >= 0.5
    if seen.main_waits < WAITS or not is_fed or not gpus_wait:
        return []
    waits = f"{seen.main_waits:.0%} of the time its main thread waits"
    return [waits, *_processes(seen), *_gpu(seen)]


def _communication(seen: Symptoms) -> list[str]:
    share = share_of_communication(seen)
    if share is None or share < HOLDS:
        return []
    said = f"{share:.0%} of the time goes into exchanges between {seen.ranks} ranks"
    return [f"{said}, {_says(seen, seen.own_communication)}"]


def _memory(seen: Symptoms) -> list[str]:
    busy, traffic = seen.gpu_busy or 0.0, seen.gpu_traffic or 0.0
    if busy >= IDLE_GPU and traffic >= BUSY_MEMORY:
        return [f"the GPU's memory is read or written {traffic:.0%} of the time", *_gpu(seen)]
    held, has = seen.rss_bytes, seen.memory_bytes
    if held and has and held >= FULL * has and (seen.faults_s or 0.0) >= FAULTS_S:
        said = f"its processes hold {byte_text(held)} of the {byte_text(has)} that it asks for"
        return [said, f"{seen.faults_s:.0f} pages a second come back from a disk"]
    return []


def _launch(seen: Symptoms) -> list[str]:
    own = (seen.own_compute, seen.own_data, seen.own_communication)
    known = [share for share in own if share is not None]
    # What a thread without a CPU takes is in none of the shares, and no operation's fault.
    if len(known) == len(own) and 1 - sum(known) - (seen.main_delayed or 0.0) >= 0.5:
        said = f"{1 - sum(known):.0%} of the time is neither compute, exchange nor loading"
        return [f"{said}, as it reports itself", *_gpu(seen)]
    data, busy = share_of_data(seen), seen.main_busy
    if data is None or busy is None or busy < BUSY_THREAD:
        return []
    thread = f"its main thread uses {busy:.0%} of a CPU, and {data:.0%} of the time for loading"
    if seen.gpus:
        waits = seen.gpu_busy is not None and seen.gpu_busy < IDLE_GPU
        return [thread, *_gpu(seen)] if waits else []
    if seen.cores < 2 or seen.cpu_cores is None or seen.cpu_cores > FEW_CORES:
        return []
    return [thread, f"of {seen.cores:g} CPUs {seen.cpu_cores:.1f} are at work"]


def _batch(seen: Symptoms) -> list[str]:
    busy, power, memory = seen.gpu_busy, seen.gpu_power, seen.gpu_memory
    if busy is None or power is None or memory is None:
        return []
    if busy < IDLE_GPU or power > LITTLE_POWER or memory > LITTLE_MEMORY:
        return []
    # GPUs that wait for others look the same.
    return [] if share_of_communication(seen) is None else _gpu(seen)


def _computing(seen: Symptoms) -> list[str]:
    if seen.gpus:
        is_busy = seen.gpu_busy is not None and seen.gpu_busy >= BUSY_GPU
        draws = seen.gpu_power is None or seen.gpu_power > LITTLE_POWER
        # With several ranks a GPU that waits for others is busy as well.
        known = share_of_communication(seen) is not None or bool(seen.gpu_power)
        return _gpu(seen) if is_busy and draws and known else []
    if seen.cpu_cores is None or seen.cpu_cores < BUSY_CPUS * seen.cores:
        return []
    # A thread that loads is at work as well: without stacks they look the same.
    if share_of_data(seen) is None or share_of_communication(seen) is None:
        return []
    return [f"of {seen.cores:g} CPUs {seen.cpu_cores:.1f} are at work"]


def _cpus(seen: Symptoms) -> list[str]:
    if (seen.main_delayed or 0.0) < DELAYED:
        return []
    said = f"{seen.main_delayed:.0%} of the time its main thread could run and has no CPU"
    return [said, *_gpu(seen)]


_RULES: Sequence[tuple[str, Callable[[Symptoms], list[str]]]] = (
    (FILES, _files),
    (LOADER, _loader),
    (COMMUNICATION, _communication),
    (MEMORY, _memory),
    (LAUNCH, _launch),
    (BATCH, _batch),
    (COMPUTING, _computing),
    (CPUS, _cpus),
)


def _gpu(seen: Symptoms) -> list[str]:
    if seen.gpu_busy is None:
        return []
    said = f"the GPU is busy {seen.gpu_busy:.0%} of the time"
    more = []
    if seen.gpu_power is not None:
        more.append(f"draws {seen.gpu_power:.0%} of its power")
    if seen.gpu_memory is not None:
        more.append(f"has {seen.gpu_memory:.0%} of its memory in use")
    return [", ".join([said, *more])]


def _traffic(seen: Symptoms) -> list[str]:
    if seen.read_bytes_s is None or seen.written_bytes_s is None:
        return []
    read, written = byte_text(int(seen.read_bytes_s)), byte_text(int(seen.written_bytes_s))
    return [f"it reads {read} and writes {written} a second"]


def _processes(seen: Symptoms) -> list[str]:
    if not seen.loaders or seen.loader_cores is None:
        return []
    count = round(seen.loaders) or 1
    return [
        f"{count} process{'es' if count > 1 else ''} that it has started "
        f"use{'' if count > 1 else 's'} {seen.loader_cores:.1f} CPUs"
    ]


def _what_was_seen(seen: Symptoms) -> list[str]:
    found = _gpu(seen)
    if seen.gpus and not found:
        found.append("nothing was heard of the GPUs")
    if seen.main_busy is not None and seen.main_waits is not None:
        found.append(
            f"its main thread uses {seen.main_busy:.0%} of a CPU and waits {seen.main_waits:.0%} "
            "of the time"
        )
    for share, what in (
        (share_of_data(seen), "loading"),
        (share_of_communication(seen) if seen.ranks > 1 else None, "exchanges"),
    ):
        if share is not None:
            found.append(f"{share:.0%} of the time goes into {what}")
    return found or ["no process of it could be seen from here"]


def _what_would_tell(seen: Symptoms) -> str:
    if seen.main_busy is None:
        return "Its processes are not those of its task (a container's daemon runs them, say)."
    if 0 < seen.stack_looks < LEAST_LOOKS:
        return "Its stacks were seen too rarely: sweep profile --time 120."
    if share_of_data(seen) is None or share_of_communication(seen) is None:
        return f"What it waits for is not known: {MORE}."
    return "Look at the stacks: sweep profile --py-spy; or at the operations: --torch."
