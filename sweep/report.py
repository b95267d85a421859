"""The client that runs inside training: report metrics, learn whether to stop, find the checkpoint.

Standard library only, one file, Python 3.8 or newer: it works in any image without being installed.
Outside sweep it does nothing, so a script that uses it runs alone unchanged.

    from sweep.report import Reporter

    r = Reporter()
    start = load(r.resume) if r.resume else 0
    for epoch in range(start, epochs):
        ...
        r.log(step=epoch, val_accuracy=0.91, train_loss=0.2)
        save(r.checkpoint_dir)
        if r.should_stop():        # None, "pruned" or "checkpoint"
            break
    else:
        r.done()                   # all is done, whatever it was told meanwhile

Each ``log`` appends one JSON line to ``$SWEEP_METRICS``: {"step": 3, "time": 1.7e9, "metrics":
{"val_accuracy": 0.91}, "by": "node1:4242"}. A number that JSON lacks is written as "nan", "inf" or
"-inf". Values of a metric that another live process reports too are apart from "metrics", as
"beside". ``should_stop`` reads ``$SWEEP_CONTROL``: {"stop": "pruned"}, absent while training may go
on. ``answer.jsonl`` beside that file says what training made of it: there is none where nobody says
so, {"resumed": true} once ``resume`` has been read, {"saw": "checkpoint"} once ``should_stop`` has
returned a word, {"done": true} after ``done``, and where trials share a GPU (``$SWEEP_SHARED_GPU``)
{"gpu_bytes": 3e9}, the most that its allocator has reserved. Any language can do the same.

Of several processes (DDP, MPI) only rank 0 reports. Which one that is, is asked at each ``log``: of
what is alive in the process (torch.distributed, mpi4py, jax, ...), else of the variables that
launchers set.
"""

import contextlib
import fcntl
import hashlib
import importlib
import json
import math
import os
import socket
import sys
import threading
import time

# Written in JSON as strings, because JSON has no such numbers.
_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

# A peak of the GPU's memory is said again once it has grown so much; below so many bytes never.
_GROWN = 1.02
_LEAST_GPU_BYTES = 1 << 24

# A launcher's variables: a process's rank among all, and how many there are. Those that count nodes
# or wrap others come last: under mpirun each process has the same SLURM_PROCID.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),  # torchrun, DeepSpeed, Composer, Accelerate, Ray Train
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),  # MVAPICH
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),  # jsrun
    ("PALS_RANKID", "PALS_SIZE"),  # Cray's mpiexec
    ("ALPS_APP_PE", ""),  # aprun
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI, MS-MPI, srun --mpi=pmi2
    ("PMIX_RANK", ""),  # prun, srun --mpi=pmix
    ("MPI_RANKID", "MPI_NRANKS"),  # Platform MPI
    ("MP_CHILD", "MP_PROCS"),  # poe
    ("MLX_RANK", "MLX_WORLD_SIZE"),
    ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"),
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
)
_STEP_OF_SLURM = (("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), ("SLURM_PROCID", "SLURM_NTASKS"))
# Its rank among those of its node: any but 0 is not the first one of all.
_LOCAL_RANKS = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MVP_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PMI_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "JSM_NAMESPACE_LOCAL_RANK",
    "FLUX_TASK_LOCAL_ID",
    "SLURM_LOCALID",
)


def _whole(environ, name):
    text = (environ.get(name) or "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def _launched(environ):
    """Return rank and number of processes as the launchers' variables say (1: no more is known).

    A rank of 0 counts only where there are several: a launcher of one process may stand around
    another one, whose processes all inherit it.
    """
    found = _first_of(environ, _LAUNCHERS) or _of_tensorflow(environ) or _of_lightning(environ)
    found = found or _first_of(environ, _STEP_OF_SLURM)
    if found:
        return found
    rank = max((_whole(environ, name) or 0) for name in _LOCAL_RANKS)
    return rank, rank + 1


def _first_of(environ, launchers):
    for rank_name, size_name in launchers:
        rank, size = _whole(environ, rank_name), _whole(environ, size_name)
        if rank or (rank == 0 and (size or 1) > 1):
            return rank, max(size or 1, rank + 1)
    return None


def _of_lightning(environ):
    # Lightning's own launcher, and whoever does as it does: no RANK, but these two.
    local, node = _whole(environ, "LOCAL_RANK"), _whole(environ, "NODE_RANK")
    size = _whole(environ, "WORLD_SIZE") or 1
    if local is None or node is None or (not local and not node and size == 1):
        return None
    each = _whole(environ, "LOCAL_WORLD_SIZE")
    nodes = _whole(environ, "NNODES") or _whole(environ, "NUM_NODES")
    if not each and nodes and size % nodes == 0:
        each = size // nodes
    # A node has at least as many as this one's place in it says.
    rank = node * (each or local + 1) + local
    return rank, max(size, rank + 1)


def _of_tensorflow(environ):
    try:
        given = json.loads(environ.get("TF_CONFIG") or "{}")
        cluster, task = given["cluster"], given["task"]
        index, role = int(task["index"]), task["type"]
        # The chief comes first; without one that is worker 0. Who keeps parameters comes last.
        roles = [r for r in ("chief", "master", "worker", "ps", "evaluator") if cluster.get(r)]
        size = sum(len(cluster[r]) for r in roles)
        before = roles[: roles.index(role)] if role in roles else roles
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    rank = index + sum(len(cluster[r]) for r in before)
    return (rank, max(size, rank + 1)) if size > 1 or rank else None


class _Torch:
    """torch.distributed, however its processes were started (mp.spawn sets no variables)."""

    modules = ("torch.distributed",)
    _group = (None, None)  # of gloo beside another back-end, and the world that it is of

    @staticmethod
    def place(dist):
        if dist.is_available() and dist.is_initialized():
            return dist.get_rank(), dist.get_world_size()
        return None

    @classmethod
    def share(cls, dist, word):
        # By gloo: no GPU has to be chosen, nor waited for.
        world = dist.group.WORLD
        if cls._group[1] is not world:
            takes_cpu = dist.get_backend() in ("gloo", "mpi") or not dist.is_gloo_available()
            cls._group = (None if takes_cpu else dist.new_group(backend="gloo"), world)
        told = [word]
        dist.broadcast_object_list(told, src=0, group=cls._group[0])
        return told[0]


class _Mpi:
    modules = ("mpi4py.MPI",)

    @staticmethod
    def place(mpi):
        if mpi.Is_initialized() and not mpi.Is_finalized():
            return mpi.COMM_WORLD.Get_rank(), mpi.COMM_WORLD.Get_size()
        return None

    @staticmethod
    def share(mpi, word):
        return mpi.COMM_WORLD.bcast(word, root=0)


class _Jax:
    # Not jax.process_index(): that takes the devices, before training has chosen them.
    modules = ("jax._src.distributed",)

    @staticmethod
    def place(distributed):
        state = distributed.global_state
        return (state.process_id, state.num_processes) if state.client is not None else None

    @staticmethod
    def share(_, word):
        numpy = sys.modules["numpy"]
        multihost_utils = importlib.import_module("jax.experimental.multihost_utils")
        code = numpy.zeros(32, numpy.uint8)
        data = (word or "").encode()
        code[: len(data)] = list(data)
        told = bytes(numpy.asarray(multihost_utils.broadcast_one_to_all(code)).astype(numpy.uint8))
        return told.rstrip(b"\0").decode() or None


class _Horovod:
    modules = ("horovod.torch", "horovod.tensorflow", "horovod.tensorflow.keras", "horovod.keras")

    @staticmethod
    def place(hvd):
        return (hvd.rank(), hvd.size()) if hvd.is_initialized() else None

    @staticmethod
    def share(hvd, word):
        return hvd.broadcast_object(word, root_rank=0)


class _Xgboost:
    """Its own communicator: with Dask or Ray no variable says who a process is."""

    modules = ("xgboost.collective",)

    @staticmethod
    def place(collective):
        return collective.get_rank(), collective.get_world_size()

    @staticmethod
    def share(collective, word):
        return collective.broadcast(word or "", 0) or None  # it refuses None


class _Ray:
    modules = ("ray.train",)

    @staticmethod
    def place(train):
        context = train.get_context()
        return context.get_world_rank(), context.get_world_size()

    share = None


_LIBRARIES = (_Torch, _Mpi, _Jax, _Horovod, _Xgboost, _Ray)


def _alive():
    """Return rank, number of processes, library and its module, of what connects this process with
    others; None where nothing does. Nothing is imported for it."""
    for library in _LIBRARIES:
        for name in library.modules:
            module = sys.modules.get(name)
            if module is None:
                continue
            try:
                place = library.place(module)
            except Exception:  # half imported, shut down, of another version: it says nothing
                continue
            # A world of one says nothing either: each process of a torchrun has one of MPI's.
            if place and place[0] is not None and (place[1] or 0) > 1:
                return place[0], place[1], library, module
    return None


def _number(name, value):
    if hasattr(value, "item"):  # a tensor or numpy scalar of one element
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("metric %s must be a number, got %r" % (name, value))
    value = float(value)
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


class _Journal:
    """A file of lines, open for appending.

    A metric is held, by a lock on one byte, by the live process that reported it first.
    """

    _open = {}
    _lock = threading.Lock()

    def __init__(self, path):
        self._held = set()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.id = _identity(os.fstat(self._file))

    @classmethod
    def of(cls, path):
        """Return this process's one; the lock goes with the first descriptor that is closed."""
        with cls._lock:
            found = cls._open.get(path)
            if found is not None and found.id != _identity(_stat(path)):
                cls._close(path)  # another file lies there by now
                found = None
            if found is None:
                found = cls._open[path] = cls(path)
            return found

    @classmethod
    def release(cls, path):
        """Let others report what this process did."""
        with cls._lock:
            cls._close(path)

    @classmethod
    def _close(cls, path):
        found = cls._open.pop(path, None)
        if found is not None:
            os.close(found._file)

    @classmethod
    def forget(cls):
        """Forget, in a child, what the parent has open: the locks are the parent's alone."""
        cls._lock = threading.Lock()
        for path in list(cls._open):
            cls._close(path)

    def holds(self, name):
        """Take a metric for this process; False where another one that lives has it."""
        if name not in self._held:
            place = int.from_bytes(
                hashlib.sha256(name.encode("utf-8", "replace")).digest()[:7], "big"
            )
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            except (BlockingIOError, PermissionError):
                return False
            except OSError:
                pass  # a file system without locks: who reads the file sees it from the lines
            self._held.add(name)
        return True

    def append(self, line):
        _write(self._file, line)


def _stat(path):
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _identity(found):
    return found and (found.st_dev, found.st_ino)


os.register_at_fork(after_in_child=_Journal.forget)


def _write(descriptor, line):
    # One write of one line to a file opened for appending: never interleaved, never half seen
    # as a whole line, and in the file before this call returns.
    data = line.encode("utf-8")
    while data:
        data = data[os.write(descriptor, data) :]


def _append(path, line):
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        _write(descriptor, line)
    finally:
        os.close(descriptor)


def encode(step, metrics, when, by=None, beside=None):
    """Return the journal line (with its newline) of one report."""
    record = {"step": int(step), "time": when, "metrics": metrics}
    if by:
        record["by"] = by
    if beside:
        record["beside"] = beside
    return json.dumps(record, allow_nan=False, ensure_ascii=False) + "\n"


def decode(line):
    """Return (step, time, {name: float}) of a journal line; ValueError where it is not one."""
    record = json.loads(line)
    if not isinstance(record, dict) or "metrics" not in record or "step" not in record:
        raise ValueError("not a metrics line: %r" % line[:200])
    metrics = {}
    for name, value in record["metrics"].items():
        value = _NONFINITE.get(value, value) if isinstance(value, str) else value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError("metric %s is not a number: %r" % (name, value))
        metrics[str(name)] = float(value)
    return int(record["step"]), float(record.get("time", 0.0)), metrics


class Reporter:
    """Talks to sweep through two files of the attempt's folder.

    Args:
        environ: Variables to go by instead of the process's own, the launchers' among them.

    Attributes:
        active: Whether sweep started this process.
        checkpoint_dir: Folder for this attempt's checkpoints, or None outside sweep.
        seed: The trial's seed, or None outside sweep.
    """

    def __init__(self, environ=None):
        environ = os.environ if environ is None else environ
        self._environ = environ
        self._metrics = environ.get("SWEEP_METRICS") or None
        self._control = environ.get("SWEEP_CONTROL") or None
        self.active = self._metrics is not None
        self._resume = environ.get("SWEEP_RESUME") or None
        self.checkpoint_dir = environ.get("SWEEP_CHECKPOINT_DIR") or None
        self.seed = int(environ["SWEEP_SEED"]) if environ.get("SWEEP_SEED") else None
        self._has_resumed = False
        self._next_step = None  # not known before the first report
        self._answer = None
        self._saw = None
        self._gpu_bytes = 0
        if self.active and self._control:
            self._answer = os.path.join(os.path.dirname(self._control), "answer.jsonl")
            self._note("")  # from now on, silence says that no word was seen
        # Given to it by the command, or lying where it saves: then it goes on by itself.
        inside = os.path.join(self.checkpoint_dir or "", "")
        if self._resume and (
            any(self._resume in argument for argument in sys.argv)
            or (self.checkpoint_dir and self._resume.startswith(inside))
        ):
            self._goes_on()

    @property
    def resume(self):
        """Path of the checkpoint to go on from, or None at the first attempt.

        Who reads it is taken to go on from there: steps that are not given count on.
        """
        if self._resume:
            self._goes_on()
        return self._resume

    def _goes_on(self):
        if not self._has_resumed:
            self._has_resumed = True
            self._note(json.dumps({"resumed": True}) + "\n")

    def rank(self):
        """Return this process's rank, 0 for the one that reports.

        It is asked anew each time: of what is alive in this process, else of the variables that
        launchers set. Where a launcher tells no more than the rank within a node, that.
        """
        found = _alive()
        return found[0] if found else _launched(self._environ)[0]

    def log(self, step=None, metrics=None, **more):
        """Report metrics of one step; only rank 0 does.

        Args:
            step: A whole number, 0 or more: the epoch or batch that the values belong to. Without
                it steps count up from 0; where training has read ``resume``, from the step after
                the last one that was reported before that checkpoint was saved.
            metrics: A mapping, for names that are no Python identifiers ("val/acc").
            more: Metrics by keyword. Numbers, or tensors of one element.

        Raises:
            TypeError: A value is not a number.
            OSError: The journal cannot be written (a full disk).
        """
        step = self._count_on() if step is None else int(step)
        self._next_step = step + 1
        if not self.active:
            return
        if self.rank() != 0:
            _Journal.release(self._metrics)  # what it held while it did not know that
            return
        journal = _Journal.of(self._metrics)
        values = {n: _number(n, v) for n, v in dict(metrics or {}, **more).items()}
        beside = {n: v for n, v in values.items() if not journal.holds(n)}
        own = {n: v for n, v in values.items() if n not in beside}
        by = "%s:%d" % (socket.gethostname(), os.getpid())
        journal.append(encode(step, own, time.time(), by, beside))
        if self._environ.get("SWEEP_SHARED_GPU"):
            self._note_gpu()

    def _note_gpu(self):
        """Say how much of the GPU torch's allocator has reserved at the most: where a driver hides
        whose memory it is (in containers), nobody else can."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is None or not cuda.is_available() or not cuda.is_initialized():
            return
        found = int(cuda.max_memory_reserved())
        if found > _GROWN * max(self._gpu_bytes, _LEAST_GPU_BYTES):
            self._gpu_bytes = found
            self._note(json.dumps({"gpu_bytes": found}) + "\n")

    def _count_on(self):
        if self._next_step is None and self._has_resumed:
            return _whole(self._environ, "SWEEP_NEXT_STEP") or 0
        return self._next_step or 0

    def should_stop(self, all_ranks=False):
        """Return None (go on), "pruned" (end now) or "checkpoint" (save, then end).

        Args:
            all_ranks: Return what rank 0 was told, on each rank, so that all leave at the same
                step. Collective: all ranks must call it equally often.

        Raises:
            RuntimeError: There are several processes, and nothing that connects them.
        """
        if not all_ranks:
            return self._read_word()
        found = _alive()
        if found and found[2].share:
            rank, _, library, module = found
            return library.share(module, self._read_word() if rank == 0 else None)
        count = found[1] if found else _launched(self._environ)[1]
        if count > 1 and self.active:
            raise RuntimeError(
                "should_stop(all_ranks=True): one of %d processes, and none of torch.distributed, "
                "mpi4py, jax, horovod is initialised in it. Call it after that, or pass on what "
                "rank 0 gets from should_stop()." % count
            )
        return self._read_word()

    def _read_word(self):
        if not self._control:
            return None
        try:
            with open(self._control, encoding="utf-8") as stream:
                found = json.load(stream)
        except (FileNotFoundError, ValueError, RecursionError):
            return None
        word = found.get("stop") if isinstance(found, dict) else None
        if not isinstance(word, str):
            return None
        if word and word != self._saw:
            self._saw = word
            self._note(json.dumps({"saw": word}) + "\n")
        return word

    def done(self):
        """Say that training has finished, also where it was told to stop before its end.

        A training that ``should_stop`` has told so is taken for one that left, and goes on later.
        """
        self._note(json.dumps({"done": True}) + "\n")

    def _note(self, line):
        if not self._answer or self.rank() != 0:
            return
        try:
            _append(self._answer, line)
        except OSError:  # a full disk: then silence is not to say anything either
            with contextlib.suppress(OSError):
                os.unlink(self._answer)
            self._answer = None
