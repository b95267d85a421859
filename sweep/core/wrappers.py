"""The programs that wrap a command, and those that start ranks: tables, and nothing but words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True)
class Wrapper:
    """A program that starts the command that follows its own words.

    Attributes:
        verb: The words that make it one: ``run`` of ``uv run``; empty where it always is.
        valued: Options whose value is a word of its own, before the verb and after it.
        operands: Words of its own before the command: the duration of ``timeout 1h …``.
        assigns: Whether NAME=value may stand before the command.
        brings: Whether it brings programs of its own: what it starts need not be on PATH.
        runs_python: Whether a script alone, or ``-m module``, is Python's (``uv run train.py``).
        moves: Options that start the command in another folder.
        prefix: What of the command's first word is no program's: ``env:`` of ``hatch run env:x``.
    """

    verb: str = ""
    valued: frozenset[str] = frozenset()
    operands: int = 0
    assigns: bool = False
    brings: bool = False
    runs_python: bool = False
    moves: frozenset[str] = frozenset()
    prefix: str = ""


_CONDA = Wrapper(
    "run",
    _words("-n --name -p --prefix -r --root-prefix --cwd -e --env -a --attach --rc-file"),
    brings=True,
    moves=_words("--cwd"),
)
_UV_OPTIONS = _words(
    "--extra --no-extra --group --no-group --only-group --env-file -w --with --with-editable "
    "--with-requirements --package -p --python --python-platform --directory --project "
    "--config-file --index --default-index -i --index-url --extra-index-url -f --find-links "
    "--index-strategy --keyring-provider --resolution --prerelease --fork-strategy "
    "--exclude-newer --link-mode -C --config-setting --no-build-package --no-binary-package "
    "--refresh-package --reinstall-package -P --upgrade-package --cache-dir --color "
    "--allow-insecure-host -b --build-constraints -c --constraints --overrides --from "
    "--torch-backend"
)
_TRACERS = Wrapper(valued=_words("-o -e -E -p -u -S -s -a -P -b -I -O -X -n -x -l -w"))

# By the program's name. The options are those of the programs' own manuals; one that is missing
# here makes its value look like the program, which launch then says.
WRAPPERS: Mapping[str, Wrapper] = {
    # environments
    "uv": Wrapper(
        "run", _UV_OPTIONS, brings=True, runs_python=True, moves=_words("--directory --project")
    ),
    "uvx": Wrapper("", _UV_OPTIONS, brings=True, moves=_words("--directory")),
    "pipx": Wrapper("run", _words("--spec --python --pip-args --index-url -i --with"), brings=True),
    "poetry": Wrapper(
        "run",
        _words("-C --directory -P --project"),
        brings=True,
        moves=_words("-C --directory -P --project"),
    ),
    "pipenv": Wrapper("run", _words("--python --pypi-mirror"), brings=True),
    "pdm": Wrapper(
        "run", _words("-c --config -p --project --venv"), brings=True, moves=_words("-p --project")
    ),
    "hatch": Wrapper(
        "run",
        _words("-e --env -p --project --data-dir --cache-dir --config"),
        brings=True,
        prefix=r"[\w.-]+:",
    ),
    "rye": Wrapper("run", _words("--pyproject"), brings=True),
    "conda": _CONDA,
    "mamba": _CONDA,
    "micromamba": _CONDA,
    "pixi": Wrapper(
        "run",
        _words("-e --environment --manifest-path -m --color --concurrent-downloads -w --workspace"),
        brings=True,
    ),
    "apptainer": Wrapper(
        "exec",
        _words(
            "-B --bind --env --env-file -H --home --pwd --cwd -o --overlay -W --workdir --app -S "
            "--scratch --mount --security --add-caps --drop-caps --apply-cgroups --dns --hostname "
            "--network --network-args --cpus --memory --fakerootpath --pem-path"
        ),
        operands=1,
        brings=True,
        moves=_words("--pwd --cwd"),
    ),
    # variables, limits, places
    "env": Wrapper(
        "",
        _words("-u --unset -C --chdir -S --split-string -a --argv0"),
        assigns=True,
        moves=_words("-C --chdir"),
    ),
    "dotenv": Wrapper("run", _words("-f --file -q --quote -e --export"), brings=True),
    "direnv": Wrapper("exec", operands=1, brings=True),
    "nice": Wrapper("", _words("-n --adjustment")),
    "ionice": Wrapper("", _words("-c --class -n --classdata -p --pid")),
    "chrt": Wrapper("", _words("-T -P -D"), operands=1),
    "taskset": Wrapper("", operands=1),
    "numactl": Wrapper(
        "",
        _words(
            "-i --interleave -N --cpunodebind -C --physcpubind -m --membind -p --preferred "
            "-P --preferred-many -w --weighted-interleave"
        ),
    ),
    "prlimit": Wrapper("", _words("-o --output -p --pid")),
    "timeout": Wrapper("", _words("-k --kill-after -s --signal"), operands=1),
    "time": Wrapper("", _words("-f --format -o --output")),
    "stdbuf": Wrapper("", _words("-i --input -o --output -e --error")),
    "unbuffer": Wrapper(),
    "nohup": Wrapper(),
    "setsid": Wrapper(),
    "exec": Wrapper("", _words("-a")),
    "command": Wrapper(),
    "sudo": Wrapper(
        "", _words("-u --user -g --group -C -D --chdir -h -p -r -t -T -U"), assigns=True
    ),
    "gosu": Wrapper(operands=1),
    "flock": Wrapper("", _words("-w --timeout -E --conflict-exit-code"), operands=1),
    "systemd-run": Wrapper(
        "", _words("-u --unit -p --property -E --setenv --slice -M --uid --gid")
    ),
    "systemd-inhibit": Wrapper("", _words("--what --who --why --mode")),
    "cgexec": Wrapper("", _words("-g")),
    # displays, tracers, meters
    "xvfb-run": Wrapper(
        "",
        _words(
            "-e --error-file -f --auth-file -n --server-num -p --xauth-protocol -s --server-args "
            "-w --wait"
        ),
    ),
    "dbus-run-session": Wrapper("", _words("--config-file --dbus-daemon")),
    "catchsegv": Wrapper(),
    "strace": _TRACERS,
    "ltrace": _TRACERS,
    "valgrind": Wrapper(),
    "perf": Wrapper("record|stat", _words("-e -o --output -F -g --call-graph -C -p -t -r")),
    "nsys": Wrapper(
        "profile|launch",
        _words(
            "-o --output -t --trace -s --sample -c --capture-range -w --show-output -f "
            "--force-overwrite -d --duration -y --delay -x --stop-on-exit -b --backtrace -e "
            "--env-var --stats --cuda-memory-usage --gpu-metrics-devices --session --session-new "
            "--kill --wait -p --nvtx-capture"
        ),
    ),
    "ncu": Wrapper("", _words("-o --export -k --kernel-name -c -s --set --section --metrics")),
    "py-spy": Wrapper("record", _words("-o --output -r --rate -d --duration -f --format")),
    "codecarbon": Wrapper("monitor", brings=True),
}
WRAPPERS = {
    **WRAPPERS,
    "singularity": WRAPPERS["apptainer"],
    "gtime": WRAPPERS["time"],
    "gtimeout": WRAPPERS["timeout"],
    "gstdbuf": WRAPPERS["stdbuf"],
    "su-exec": WRAPPERS["gosu"],
}

# Programs that start ranks themselves.
LAUNCHERS = _words(
    "torchrun torchrun-hpc srun accelerate accelerate-launch deepspeed deepspeed.pt ds dsr "
    "horovodrun composer colossalai tune ray torchx fabric lightning lightning_run msrun bpslaunch "
    "mpirun mpiexec orterun prterun prun aprun jsrun lrun ibrun flux pdsh mpirun_rsh charmrun"
)
# mpirun.openmpi, mpiexec.hydra, mpiexec.mpich: Debian's and MPICH's names.
MPI = r"(?:mpirun|mpiexec)[._-][\w.-]+"
# Modules that do so: ``python -m …``.
MODULES = (
    r"torch\.distributed\.(?:run|launch)|accelerate(?:\.commands\.\w+)?|"
    r"deepspeed(?:\.launcher(?:\.\w+)*)?|horovod\.runner(?:\.\w+)*|composer(?:\.cli(?:\.\w+)?)?|"
    r"colossalai\.cli(?:\.\w+)*|torchtune\._cli(?:\.\w+)*|torchx(?:\.cli(?:\.\w+)?)?|"
    r"ray(?:\.scripts(?:\.\w+)*)?|lightning(?:\.fabric|_fabric)\.cli|"
    r"(?:paddle|oneflow|bagua)\.distributed\.launch|torch_xla\.distributed\.xla_(?:dist|spawn)"
)
