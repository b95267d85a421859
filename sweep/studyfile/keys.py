"""The table of everything that a study file may hold.

One table for all: the loader checks by it, ``sweep schema`` generates the JSON Schema from it, and
editors show its sentences. ``site_keys``, ``search_keys`` and ``space_keys`` hold its larger parts.
"""

from __future__ import annotations

from typing import Any

from sweep.core.study import Choice, Ddp, Environment, Objective, Resources, Retry, Slurm, Storage
from sweep.studyfile.address import STORAGE
from sweep.studyfile.amounts import Duration
from sweep.studyfile.constraint_keys import Constraints
from sweep.studyfile.kinds import Command, Commands, OneOrMore
from sweep.studyfile.rules import Real, Text, TextList, Whole, Word
from sweep.studyfile.search_keys import PRUNER, SAMPLER, TERMINATOR
from sweep.studyfile.sections import REQUIRED, Key, Section
from sweep.studyfile.site_keys import DDP, ENVIRONMENT, RESOURCES, SLURM
from sweep.studyfile.space_keys import Configurations, SpaceRule, Values

NAME = Text(
    pattern=r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}",
    rule="must be 1 to 100 letters, digits, '.', '_' or '-', not starting with '.' or '-'",
    advice="It names a folder and jobs: digits-2 or mnist.cnn, for example.",
    max_length=100,
)
PATTERN_ADVICE = 'For example "val_acc=([0-9.eE+-]+)".'

_MAXIMIZE = ("max", "maximise", "maximum", "up", "higher", "increase", "asc", "maximization")
_MINIMIZE = ("min", "minimise", "minimum", "down", "lower", "decrease", "desc", "minimization")
DIRECTIONS = Word(
    ("maximize", "minimize"),
    dict.fromkeys(_MAXIMIZE, "maximize") | dict.fromkeys(_MINIMIZE, "minimize"),
)


def _objective(**values: Any) -> Objective:
    return Objective(**(values | {"pattern": (values["pattern"] or {}).get("stdout")}))


OBJECTIVE = Section(
    "an objective",
    (
        Key(
            "metric",
            Text(pattern=r"\S(.*\S)?", rule="must be the name of a metric"),
            "Name of the metric to optimise, as training reports it; slashes are fine.",
            REQUIRED,
            "val_accuracy",
            aliases=("name", "key", "monitor"),
        ),
        Key(
            "direction",
            DIRECTIONS,
            "Whether more or less of the metric is better.",
            REQUIRED,
            "maximize",
            aliases=("goal", "mode", "optimize", "optimise"),
        ),
        Key(
            "at",
            Word(("best", "last")),
            "Which of the reported steps counts: the best one or the last one.",
            "best",
            "best",
        ),
        Key(
            "from",
            Section(
                "objective.from",
                (
                    Key(
                        "stdout",
                        Text(
                            rule="must be a regular expression",
                            advice=PATTERN_ADVICE,
                            max_length=2000,
                        ),
                        "Regular expression that finds the metric in a line of output; its first "
                        "group is the number. Each line that matches is one more step.",
                        REQUIRED,
                        "val_acc=([0-9.eE+-]+)",
                        aliases=("regex", "pattern", "output"),
                    ),
                ),
            ),
            "Where the metric is read, for a script that knows nothing of sweep. Absent: training "
            "reports it.",
            None,
            {"stdout": "val_acc=([0-9.eE+-]+)"},
            "pattern",
        ),
    ),
    _objective,
)

RETRY = Section(
    "retry",
    (
        Key(
            "max_attempts",
            Whole(1, 1000),
            "Attempts of a trial that end in a fault, in all.",
            3,
            3,
            aliases=("attempts", "max_retries", "retries", "limit"),
        ),
        Key(
            "max_user_failures",
            Whole(1, 100_000),
            "So many failures of the user's own code "
            "before the study's first metric hold the study. Absent: the smaller of max_parallel "
            "and 3.",
            None,
            3,
        ),
    ),
    Retry,
)

STUDY = Section(
    "a study file",
    (
        Key(
            "name",
            NAME,
            "Name of the study; all of it lies under runs/<name>/.",
            REQUIRED,
            "digits",
            aliases=("study", "study_name", "title"),
        ),
        Key(
            "command",
            Command(),
            "What to run: text, split as a shell would and never run by one, "
            "or a list of arguments. Placeholders: {config}, {trial_dir}, {seed}, "
            "{checkpoint_dir}, {resume}, {params} (all as --name=value), {overrides} (all as "
            "name=value) and {name} of any parameter; {{ and }} are braces.",
            REQUIRED,
            "python train.py --config {config}",
            aliases=("cmd", "program", "script", "run"),
        ),
        Key(
            "objective",
            OneOrMore(OBJECTIVE),
            "What to optimise; a list for several at once.",
            REQUIRED,
            {"metric": "val_accuracy", "direction": "maximize"},
            "objectives",
            ("objectives", "metric", "goal", "target_metric"),
        ),
        Key(
            "space",
            SpaceRule(),
            "What varies: a range or choices for each parameter. {} repeats "
            "the command, each time with another seed.",
            REQUIRED,
            {"lr": {"type": "float", "low": 0.0001, "high": 0.1, "log": True}},
            aliases=("parameters", "params", "search_space", "hyperparameters"),
            advice="Declare what varies, or write space: {} to repeat the command with other "
            "seeds.",
        ),
        Key(
            "fixed",
            Values(),
            "Values that every trial gets.",
            {},
            {"epochs": 5},
            aliases=("constants", "config", "defaults"),
        ),
        Key(
            "points",
            Configurations(),
            "Configurations to try first; they may leave parameters "
            "out. Or the path of a CSV file with a column for each, such as sweep collect writes.",
            (),
            [{"lr": 0.01}],
            aliases=("enqueue", "initial_points", "configurations"),
        ),
        Key(
            "warm_start",
            NAME,
            "Name of an earlier study in the same database: the sampler learns "
            "from its trials too, as far as they lie in this space.",
            None,
            "digits",
            aliases=("learn_from", "transfer", "previous_study", "prior"),
        ),
        Key(
            "duplicates",
            Word(("keep", "resample", "reuse")),
            "What becomes of a configuration "
            "that a trial has finished already. keep: it runs again; resample: another one is "
            "drawn; reuse: the earlier result counts, and nothing runs.",
            "keep",
            "resample",
            aliases=("duplicate", "on_duplicate"),
        ),
        Key(
            "constraints",
            Constraints(),
            "Bounds that metrics must keep to. Trials that break one "
            "are ranked after those that do not, and samplers keep away from their like.",
            (),
            {"latency_ms": {"max": 50}},
            aliases=("constraint", "subject_to", "limits"),
        ),
        Key(
            "trials",
            Whole(1, 100_000),
            "N: the study ends with so many trials. Only sampler grid "
            "has a default: the size of the grid.",
            None,
            30,
            aliases=("n_trials", "num_trials", "max_trials", "count", "num_samples"),
        ),
        Key(
            "seed",
            Whole(0, 2**32 - 1),
            "Seed of the study; each trial's comes from it.",
            0,
            0,
            aliases=("random_seed", "random_state"),
        ),
        Key(
            "sampler",
            SAMPLER,
            "How parameters are chosen.",
            Choice("auto"),
            "tpe",
            aliases=("method", "algorithm", "search", "optimizer", "strategy"),
        ),
        Key(
            "pruner",
            PRUNER,
            "Which trials are stopped early.",
            Choice("none"),
            {"type": "asha", "min_resource": 3, "reduction_factor": 3},
            aliases=("early_stopping", "early_terminate", "scheduler", "pruning"),
        ),
        Key(
            "time",
            Duration(),
            "Budget of the whole study: it ends once its trials have run for "
            "so long. Time in which none runs does not count. The limit of one task is "
            "resources.time, that of one trial trial_time.",
            None,
            "8h",
            "time_s",
            ("budget", "study_time", "time_budget", "max_duration", "wall_time"),
        ),
        Key(
            "gpu_hours",
            Real(above=0),
            "Budget of the whole study: it ends once its trials have held GPUs for so many hours.",
            None,
            100,
            aliases=("max_gpu_hours", "gpu_budget", "gpuhours"),
        ),
        Key(
            "target",
            Real(),
            "The study ends once a trial's objective is as good as this.",
            None,
            0.99,
            aliases=("target_value", "stop_at", "goal_value"),
        ),
        Key(
            "patience",
            Whole(1, 100_000),
            "The study ends once so many trials in a row were no better than the best before them.",
            None,
            30,
            aliases=("max_stagnation", "stagnation", "no_improvement"),
        ),
        Key(
            "terminator",
            TERMINATOR,
            "Optuna's terminator: the study ends once it finds that "
            "little is left to gain. It needs torch where the tasks run.",
            Choice("none"),
            "emmr",
            aliases=("termination", "stopper"),
        ),
        Key(
            "max_parallel",
            Whole(1, 100_000),
            "K: so many trials run at once, at most. Absent: no limit.",
            None,
            4,
            aliases=(
                "parallel",
                "n_jobs",
                "concurrency",
                "max_concurrent",
                "workers",
                "k",
                "max_concurrent_trials",
            ),
        ),
        Key(
            "trial_time",
            Duration(),
            "Limit of one trial's training, over all its attempts.",
            None,
            "2h",
            "trial_time_s",
            ("timeout", "max_time"),
        ),
        Key(
            "stall_time",
            Duration(),
            "Training that reports and prints nothing for so long has hung.",
            None,
            "20min",
            "stall_time_s",
            ("stall", "watchdog", "stall_timeout"),
        ),
        Key(
            "grace",
            Duration(),
            "Time between the signal before a time limit and the limit.",
            60,
            "60s",
            "grace_s",
            ("grace_time", "grace_period"),
        ),
        Key(
            "tasks",
            Whole(1, 100_000, {"auto": None}),
            "Array tasks to submit; auto: one for each trial.",
            None,
            "auto",
        ),
        Key(
            "trials_per_task",
            Whole(1, 100_000),
            "Trials that a task (each of its slots) runs at "
            "most. Absent: as many as its time allows.",
            None,
            1,
        ),
        Key(
            "keep",
            Whole(0, 100_000),
            "Checkpoints of so many best trials are kept.",
            5,
            5,
            aliases=("keep_checkpoints", "checkpoints"),
        ),
        Key(
            "retry",
            RETRY,
            "How often a trial is tried again.",
            Retry(),
            {"max_attempts": 3},
            aliases=("retries",),
        ),
        Key(
            "resources",
            RESOURCES,
            "What one trial needs.",
            Resources(),
            {"time": "00:30:00", "gpus": 1, "cpus": 4, "memory": "8G"},
            aliases=("resource", "requests"),
        ),
        Key(
            "executor",
            Word(("auto", "slurm", "local")),
            "Where tasks run; auto: Slurm where a cluster is configured.",
            "auto",
            "auto",
            aliases=("backend", "cluster"),
        ),
        Key(
            "launcher",
            Word(("auto", "python", "torchrun", "srun"), {"ddp": "torchrun"}),
            "What starts the processes of one trial. auto: python for one process, torchrun for "
            "several on one node, srun on several nodes.",
            "auto",
            "torchrun",
        ),
        Key(
            "ddp",
            DDP,
            "How the processes of a trial find each other, and how many there are.",
            Ddp(),
            {"ranks_per_node": 2},
            aliases=("distributed", "nccl", "gloo"),
        ),
        Key(
            "slurm",
            SLURM,
            "What only Slurm understands.",
            Slurm(),
            {"partition": "gpu", "account": "proj1"},
            aliases=("sbatch",),
        ),
        Key(
            "environment",
            ENVIRONMENT,
            "Where the training's software comes from.",
            Environment(),
            {"runtime": "apptainer", "image": "train.sif"},
            aliases=("container",),
        ),
        Key(
            "storage",
            STORAGE,
            "Where the study's rows live: a PostgreSQL URL without a password. "
            "Absent: $SWEEP_STORAGE, or an embedded server.",
            Storage(),
            "postgresql://user@host:5432/database",
            aliases=("database", "db", "storage_url"),
        ),
        Key(
            "workdir",
            Text(rule="must be a folder"),
            "Folder in which training starts, seen from "
            "where sweep is called. Absent: that folder.",
            ".",
            "experiments",
            aliases=("cwd", "chdir", "working_dir"),
        ),
        Key(
            "code",
            Word(("frozen", "live")),
            "frozen: trials run a copy of the code that launch "
            "makes, and editing it changes none of them. live: they run the files as they are when "
            "they start.",
            "frozen",
            "live",
            aliases=("source", "snapshot"),
        ),
        Key(
            "data",
            TextList(Text(rule="must be a path")),
            "Files or folders whose content is recorded with the study.",
            (),
            ["data/mnist"],
            aliases=("datasets", "dataset"),
        ),
        Key(
            "track",
            TextList(Word(("mlflow", "tensorboard"))),
            "Trackers that are shown each "
            "trial's parameters, metrics and files. mlflow: the server of $MLFLOW_TRACKING_URI, or "
            "files in runs/<name>/mlruns; tensorboard: files in runs/<name>/tensorboard. Training "
            "never waits for them.",
            (),
            ["tensorboard"],
            aliases=("tracker", "trackers", "tracking", "loggers", "logger"),
        ),
        Key(
            "commands",
            Commands(),
            "Further commands, which `sweep run NAME` runs on the best "
            "trial's checkpoint. Placeholders as in command, and {checkpoint}; {trial_dir} is the "
            "run's own folder.",
            {},
            {"evaluate": "python evaluate.py {checkpoint}"},
            aliases=("scripts", "tasks_after"),
        ),
    ),
    None,
    {
        "gpus": "resources.gpus",
        "gpu": "resources.gpus",
        "cpus": "resources.cpus",
        "memory": "resources.memory",
        "nodes": "resources.nodes",
        "partition": "slurm.partition",
        "account": "slurm.account",
        "qos": "slurm.qos",
        "direction": "objective.direction",
        "max_attempts": "retry.max_attempts",
        "env": "environment.env",
        "image": "environment.image",
        "epochs": "fixed.epochs",
        "choices": "space.<name>.choices",
        "low": "space.<name>.low",
        "high": "space.<name>.high",
    },
)
