"""What py-spy says of a training's threads: does it load, exchange, or compute?

    py-spy dump --pid PID --json --nonblocking

It looks from outside: nothing of the training is changed, or stopped for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DATA, COMMUNICATION, WORK = "data", "communication", "work"

# Ends of file names with the functions in them; none of those: any.
_LOADERS: Sequence[tuple[str, tuple[str, ...]]] = (
    ("torch/utils/data/dataloader.py", ("__next__", "_next_data", "_get_data", "_try_get_data")),
    ("torch/utils/data/_utils/fetch.py", ()),
    ("torch/utils/data/_utils/pin_memory.py", ()),
    ("tensorflow/python/data/ops/iterator_ops.py", ()),
    ("tensorflow/python/data/experimental/ops/iterator_ops.py", ()),
    ("nvidia/dali/plugin/base_iterator.py", ()),
    ("nvidia/dali/pipeline.py", ("run", "share_outputs", "outputs")),
    ("grain/_src/python/data_loader.py", ()),
    ("webdataset/pipeline.py", ()),
    ("webdataset/compat.py", ()),
    ("datasets/arrow_dataset.py", ("__getitem__", "_getitem", "__iter__")),
    ("datasets/iterable_dataset.py", ()),
    ("streaming/base/dataset.py", ()),
    ("ffcv/loader/epoch_iterator.py", ()),
)
_EXCHANGES: Sequence[tuple[str, tuple[str, ...]]] = (
    ("torch/distributed/distributed_c10d.py", ()),
    ("torch/distributed/nn/functional.py", ()),
    ("torch/distributed/algorithms/join.py", ()),
    ("horovod/torch/mpi_ops.py", ()),
    ("horovod/tensorflow/mpi_ops.py", ()),
    ("deepspeed/comm/comm.py", ()),
    ("mpi4py/util/pkl5.py", ()),
)
_BACKWARD = ("torch/autograd/graph.py", ("_engine_run_backward",))
_FIRST = "MainThread"
_LOADER_PROCESS = ("torch/utils/data/_utils/worker.py", ("_worker_loop",))


@dataclass(frozen=True)
class Stack:
    """What the first thread of a process does.

    Attributes:
        active: Whether it runs; else it waits.
        frames: (file, function), the innermost first.
    """

    pid: int
    active: bool
    frames: Sequence[tuple[str, str]]

    def kind(self, ranks: int) -> str:
        """Return DATA, COMMUNICATION or WORK: what the innermost frame that is known says.

        Args:
            ranks: Processes of the training. On CPUs gradients are exchanged at the end of the
                backward pass: of several ranks, one that waits in it waits for the others.
        """
        for file, function in self.frames:
            if _is_one_of(file, function, _LOADERS):
                return DATA
            if _is_one_of(file, function, _EXCHANGES):
                return COMMUNICATION
            if ranks > 1 and not self.active and _is_one_of(file, function, (_BACKWARD,)):
                return COMMUNICATION
        return WORK

    @property
    def is_loader(self) -> bool:
        """Whether it is a process that loads for another."""
        return any(_is_one_of(*frame, (_LOADER_PROCESS,)) for frame in self.frames)


def _is_one_of(file: str, function: str, known: Iterable[tuple[str, tuple[str, ...]]]) -> bool:
    name = function.rpartition(".")[2]  # newer Pythons say Class.method
    return any(file.endswith(end) and (not names or name in names) for end, names in known)


def read(text: str) -> list[Stack]:
    """Return the first threads of the processes of a dump.

    Raises:
        ValueError: It is none.
    """
    threads = json.loads(text)
    if not isinstance(threads, list):
        raise ValueError("no list of threads")
    return [_stack(one) for one in _first_threads(threads)]


def _first_threads(threads: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return each process's first thread: by number, or by name where a container has numbers of
    its own, which are those that Python knows its threads by."""
    found = {}
    for one in threads:
        if one["os_thread_id"] == one["pid"]:
            found[one["pid"]] = one
        elif one.get("thread_name") == _FIRST:
            found.setdefault(one["pid"], one)
    return list(found.values())


def _stack(thread: Mapping[str, Any]) -> Stack:
    frames = [(str(f["filename"]).replace("\\", "/"), str(f["name"])) for f in thread["frames"]]
    return Stack(int(thread["pid"]), bool(thread["active"]), frames)
