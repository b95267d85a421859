"""The table of everything that a study file may hold.

One table for all: the loader checks by it, ``sweep schema`` generates the JSON Schema from it, its
sentences are what editors show and ``docs/study-file.md`` lists. ``objective_keys``, ``site_keys``,
``search_keys``, ``space_keys``, ``constraint_keys`` and ``data_keys`` hold its larger parts.

To add a key: a field with its type and default in ``sweep.core.study``, and a row of the same
name here. What it must keep to beside other keys is a function in ``crosschecks``. Where it may
stand in a site's or a user's defaults, ``defaults`` names it.
"""

from __future__ import annotations

from sweep.core import executors
from sweep.core.study import ConfigFile, Replicates, Retry, Study
from sweep.studyfile.address import STORAGE
from sweep.studyfile.amounts import Duration
from sweep.studyfile.constraint_keys import Constraints
from sweep.studyfile.data_keys import STAGING, Data
from sweep.studyfile.kinds import Command, Commands, OneOrMore
from sweep.studyfile.notify_keys import NOTIFY
from sweep.studyfile.objective_keys import OBJECTIVE
from sweep.studyfile.relation_keys import Relations
from sweep.studyfile.replicate_keys import ReplicatesRule
from sweep.studyfile.rules import Boolean, Real, Text, TextList, Whole, Word
from sweep.studyfile.search_keys import PRUNER, SAMPLER, TERMINATOR
from sweep.studyfile.sections import Key, Section
from sweep.studyfile.site_keys import DDP, ENVIRONMENT, RESOURCES, SLURM
from sweep.studyfile.space_keys import Configurations, SpaceRule, Values

NAME = Text(
    pattern=r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}",
    rule="must be 1 to 100 letters, digits, '.', '_' or '-', not starting with '.' or '-'",
    advice="It names a folder and jobs: digits-2 or mnist.cnn, for example.",
    max_length=100,
)

TRIAL = "trial"  # in the place of a folder: each attempt has its own

RETRY = Section(
    "retry",
    Retry,
    {
        "max_attempts": Key(
            Whole(1, 1000),
            "Attempts of a trial that end in a fault, in all.",
            aliases="attempts max_retries retries limit",
        ),
        "max_user_failures": Key(
            Whole(1, 100_000),
            "So many failures of the user's own code before the study's first metric hold the "
            "study. Absent: the smaller of max_parallel and 3.",
            example=3,
        ),
    },
)

CONFIG = Section(
    "config",
    ConfigFile,
    {
        "seed": Key(Boolean(), "Whether the trial's seed is in it, as seed.", example=False),
        "nested": Key(
            Boolean(),
            "Whether a name with dots is a value within mappings: model.lr is lr in model.",
            example=True,
            aliases="nest",
        ),
        "format": Key(
            Word(("yaml", "json")),
            "In which format it is written.",
            example="json",
            aliases="type suffix",
        ),
    },
)

STUDY = Section(
    "a study file",
    Study,
    {
        "name": Key(
            NAME,
            "Name of the study; all of it lies under runs/<name>/.",
            example="digits",
            aliases="study study_name title",
        ),
        "command": Key(
            Command(),
            "What to run: text, split as a shell would and never run by one, or a list of "
            "arguments. Placeholders: {config}, {trial_dir}, {seed}, {checkpoint_dir}, {resume}, "
            "{params} (all as --name=value), {overrides} (all as name=value), their forms "
            "{params: }, {params:flags}, {params:json}, {config:json}, {overrides:+}, "
            "{overrides:++}, {name} of any parameter, {data.NAME} of any data set; {{ and }} are "
            "braces.",
            example="python train.py --config {config}",
            aliases="cmd program script run",
        ),
        "objective": Key(
            OneOrMore(OBJECTIVE),
            "What to optimise; a list for several at once.",
            example={"metric": "val_accuracy", "direction": "maximize"},
            aliases="objectives metric goal target_metric",
            field="objectives",
        ),
        "space": Key(
            SpaceRule(),
            "What varies: a range or choices for each parameter. {} repeats the command, each time "
            "with another seed.",
            example={"lr": {"type": "float", "low": 0.0001, "high": 0.1, "log": True}},
            aliases="parameters params search_space hyperparameters",
            advice="Declare what varies, or write space: {} to repeat the command with other "
            "seeds.",
        ),
        "fixed": Key(
            Values(),
            "Values that every trial gets.",
            example={"epochs": 5},
            aliases="constants defaults",
        ),
        "config": Key(
            CONFIG,
            "What the file of {config} is like, for frameworks that take no other.",
            example={"seed": False, "nested": True, "format": "json"},
            aliases="config_file configuration",
        ),
        "points": Key(
            Configurations(),
            "Configurations to try first; they may leave parameters out. Or the path of a CSV file "
            "with a column for each, such as sweep collect writes.",
            example=[{"lr": 0.01}],
            aliases="enqueue initial_points configurations",
        ),
        "warm_start": Key(
            NAME,
            "Name of an earlier study in the same database: the sampler learns from its trials "
            "too, as far as they lie in this space.",
            example="digits",
            aliases="learn_from transfer previous_study prior",
        ),
        "duplicates": Key(
            Word(("keep", "resample", "reuse")),
            "What becomes of a configuration that a trial has finished already. keep: it runs "
            "again; resample: another one is drawn; reuse: the earlier result counts, and nothing "
            "runs.",
            example="resample",
            aliases="duplicate on_duplicate",
        ),
        "constraints": Key(
            Constraints(),
            "Bounds that metrics must keep to. Trials that break one are ranked after those that "
            "do not, and samplers keep away from their like.",
            example={"latency_ms": {"max": 50}},
            aliases="constraint subject_to limits",
        ),
        "where": Key(
            Relations(),
            "Relations that the parameters of a trial keep to: no trial runs without. Names of "
            "parameters and fixed values, numbers, texts, comparisons, and, or, not, + - * / // % "
            "**, min, max, log, abs.",
            example=["hidden % heads == 0"],
            aliases="relations relation forbidden forbidden_clauses restrictions "
            "parameter_constraints conditions",
        ),
        "trials": Key(
            Whole(1, 100_000),
            "N: the study ends with so many trials. Only sampler grid has a default: the size of "
            "the grid.",
            example=30,
            aliases="n_trials num_trials max_trials count num_samples",
            default=None,
        ),
        "replicates": Key(
            ReplicatesRule(),
            "Trainings with different seeds that make a trial: its value is their mean. A number, "
            "or min and max: up to max as long as the trial may still be the best. trials counts "
            "configurations, max_parallel and budgets count trainings.",
            example=3,
            aliases="seeds n_seeds num_seeds repeats repetitions n_repeats",
            default=Replicates(),
        ),
        "seed": Key(
            Whole(0, 2**32 - 1),
            "Seed of the study; each trial's comes from it.",
            aliases="random_seed random_state",
        ),
        "sampler": Key(
            SAMPLER,
            "How parameters are chosen.",
            example="tpe",
            aliases="method algorithm search optimizer strategy",
        ),
        "pruner": Key(
            PRUNER,
            "Which trials are stopped early.",
            example={"type": "asha", "min_resource": 3, "reduction_factor": 3},
            aliases="early_stopping early_terminate scheduler pruning",
        ),
        "time": Key(
            Duration(),
            "Budget of the whole study: it ends once its trials have run for so long. Time in "
            "which none runs does not count. The limit of one task is resources.time, that of one "
            "trial trial_time.",
            example="8h",
            aliases="budget study_time time_budget max_duration wall_time",
            field="time_s",
        ),
        "gpu_hours": Key(
            Real(above=0),
            "Budget of the whole study: it ends once its trials have held GPUs for so many hours.",
            example=100,
            aliases="max_gpu_hours gpu_budget gpuhours",
        ),
        "target": Key(
            Real(),
            "The study ends once a trial's objective is as good as this.",
            example=0.99,
            aliases="target_value stop_at goal_value",
        ),
        "patience": Key(
            Whole(1, 100_000),
            "The study ends once so many trials in a row were no better than the best before them.",
            example=30,
            aliases="max_stagnation stagnation no_improvement",
        ),
        "terminator": Key(
            TERMINATOR,
            "Optuna's terminator: the study ends once it finds that little is left to gain. It "
            "needs torch where the tasks run.",
            example="emmr",
            aliases="termination stopper",
        ),
        "max_parallel": Key(
            Whole(1, 100_000),
            "K: so many trials run at once, at most. Absent: no limit; locally as many as the CPUs "
            "hold.",
            example=4,
            aliases="parallel n_jobs concurrency max_concurrent workers k max_concurrent_trials",
        ),
        "trial_time": Key(
            Duration(),
            "Limit of one trial's training, over all its attempts.",
            example="2h",
            aliases="timeout max_time",
            field="trial_time_s",
        ),
        "stall_time": Key(
            Duration(),
            "Training that reports and prints nothing for so long has hung.",
            example="20min",
            aliases="stall watchdog stall_timeout",
            field="stall_time_s",
        ),
        "grace": Key(
            Duration(),
            "Time between the signal before a time limit and the limit.",
            example="60s",
            aliases="grace_time grace_period",
            field="grace_s",
        ),
        "tasks": Key(
            Whole(1, 100_000, {"auto": None}),
            "Array tasks to submit; auto: one for each trial.",
            example="auto",
        ),
        "trials_per_task": Key(
            Whole(1, 100_000),
            "Trials that a task (each of its slots) runs at most. Absent: as many as its time "
            "allows.",
            example=1,
        ),
        "keep": Key(
            Whole(0, 100_000),
            "Checkpoints of so many best trials are kept.",
            aliases="keep_checkpoints",
        ),
        "checkpoint_files": Key(
            Text(
                pattern=r"(?![/~])(?!(.*/)?\.{1,2}(/|$))(?!.*(\*\*[^/]|[^/]\*\*)).*[^/]",
                rule="must be a pattern of files within the checkpoint folder",
                advice='Without / or ~ at its start, without "..", and ** as a whole part: '
                '"last*.pt", for example, or "**/step-*".',
                max_length=500,
            ),
            "Which files or folders in a trial's checkpoint folder are checkpoints, as a glob. "
            "Absent: what is known of the layouts of frameworks says so.",
            example="last*.pt",
            aliases="checkpoint_pattern checkpoint_glob checkpoint_file ckpt_files",
        ),
        "resume": Key(
            Word(("path", "folder"), {"dir": "folder", "directory": "folder", "copy": "folder"}),
            "How a trial goes on after an interruption. path: training is told which checkpoint "
            "it is ({resume}); folder: that is also put into the new attempt's checkpoint folder, "
            "for frameworks that look there by themselves.",
            example="folder",
            aliases="resume_from resume_by resuming",
        ),
        "retry": Key(
            RETRY,
            "How often a trial is tried again.",
            example={"max_attempts": 3},
            aliases="retries",
        ),
        "resources": Key(
            RESOURCES,
            "What one trial needs.",
            example={"time": "00:30:00", "gpus": 1, "cpus": 4, "memory": "8G"},
            aliases="resource requests",
        ),
        "executor": Key(
            Word(executors.words),
            "Where tasks run; auto: Slurm where a cluster is configured.",
            aliases="backend cluster",
        ),
        "launcher": Key(
            Word(("auto", "python", "torchrun", "srun"), {"ddp": "torchrun"}),
            "What starts the processes of one trial. auto: python for one process, torchrun for "
            "several on one node (and for one where ddp is written), srun on several nodes; a "
            "command that is a launcher, or no Python, runs as it is.",
            example="torchrun",
        ),
        "ddp": Key(
            DDP,
            "How the processes of a trial find each other, and how many there are. Where the "
            "study file has it, one process is a rank as well.",
            example={"ranks_per_node": 2},
            aliases="distributed nccl gloo",
        ),
        "slurm": Key(
            SLURM,
            "What only Slurm understands.",
            example={"partition": "gpu", "account": "proj1"},
            aliases="sbatch",
        ),
        "environment": Key(
            ENVIRONMENT,
            "Where the training's software comes from.",
            example={"runtime": "apptainer", "image": "train.sif"},
            aliases="container",
        ),
        "storage": Key(
            STORAGE,
            "Where the study's rows live: a PostgreSQL URL without a password. Absent: "
            "$SWEEP_STORAGE, or an embedded server.",
            example="postgresql://user@host:5432/database",
            aliases="database db storage_url",
        ),
        "workdir": Key(
            Text(rule="must be a folder"),
            "Folder in which training starts, seen from where sweep is called. Absent: that "
            "folder. trial: each attempt has one of its own over that folder, so that what "
            "frameworks write into it does not mix.",
            example="experiments",
            aliases="cwd chdir working_dir",
        ),
        "code": Key(
            Word(("frozen", "live")),
            "frozen: trials run a copy of the code that launch makes, and editing it changes none "
            "of them. live: they run the files as they are when they start.",
            example="live",
            aliases="source snapshot",
        ),
        "share": Key(
            Word(("none", "group")),
            "none: what sweep writes is for you alone. group: the group of the runs folder may "
            "read the study's folder (not its secrets, and not the database): what launch writes, "
            "each attempt when it ends, results and reports.",
            example="group",
            aliases="sharing visibility",
        ),
        "data": Key(
            Data(),
            "Files or folders whose content is recorded with the study. With names, training is "
            "told where they lie, {data.NAME} and $SWEEP_DATA_NAME, and nodes may keep copies.",
            example={"mnist": {"path": "/data/mnist", "stage": "node"}},
            aliases="datasets dataset",
        ),
        "staging": Key(
            STAGING,
            "Where nodes keep copies of data, and how much.",
            example={"place": "/local", "quota": "500G"},
            aliases="scratch data_cache",
        ),
        "track": Key(
            TextList(Word(("wandb", "mlflow", "tensorboard", "csv"))),
            "Trackers that are shown each trial's parameters, metrics and files. wandb: a group of "
            "runs, sent where WANDB_API_KEY is set, else files in runs/<name>/wandb; mlflow: the "
            "server of $MLFLOW_TRACKING_URI, or a database of its own beside the study's, which "
            "`sweep mlflow` shows; tensorboard: files in runs/<name>/tensorboard; csv: a "
            "metrics.csv for each trial in runs/<name>/csv, as Lightning's CSVLogger writes it. "
            "Training never waits for them.",
            example=["tensorboard"],
            aliases="tracker trackers tracking loggers logger",
        ),
        "profile": Key(
            Boolean(),
            "Look at each training from outside (processes, files, GPUs; with py-spy what it waits "
            "for), and say what holds it back, in sweep report. Training finds SWEEP_PROFILE=1.",
            example=True,
            aliases="profiler profiling",
        ),
        "notify": Key(
            NOTIFY,
            "Who is told when the study ends, is held, or needs somebody.",
            example={"command": ["python", "tell.py"], "on": ["ended", "held"]},
            aliases="notifications notification hooks hook callbacks mail email alert",
        ),
        "commands": Key(
            Commands(),
            "Further commands, which `sweep run NAME` runs on the best trial's checkpoint. "
            "Placeholders as in command, and {checkpoint}; {trial_dir} is the run's own folder.",
            example={"evaluate": "python evaluate.py {checkpoint}"},
            aliases="scripts tasks_after",
        ),
    },
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
        "checkpoints": "keep (of how many best trials they are kept) or checkpoint_files (which "
        "files they are)",
    },
)
