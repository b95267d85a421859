"""``sweep init``: a study file for the user's script, or a whole example where there is none."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core import templates
from sweep.core.errors import InputError
from sweep.core.files import write_output
from sweep.core.placeholders import EDIT, escape
from sweep.studyfile.starter import notebook, r_script, shell_script
from sweep.studyfile.starter.convert import convert
from sweep.studyfile.starter.draft import HINTS, Draft, make_name, write_draft
from sweep.studyfile.starter.flags import (
    Flag,
    find_command,
    find_module,
    find_outer,
    imported,
    list_subcommands,
    read_source,
    scan,
)
from sweep.studyfile.starter.guesses import find_place, guess_parameter, is_effort
from sweep.studyfile.starter.interfaces import Interface, read_interface
from sweep.studyfile.starter.logged import TENSORBOARD, WANDB
from sweep.studyfile.starter.metrics import NUMBER, Metric, find_metrics
from sweep.studyfile.starter.notebook import read_notebook
from sweep.studyfile.starter.other_scripts import NO_SEED, OtherScript, add_arguments, reads_seed
from sweep.studyfile.starter.python_flags import Sources, find_computed
from sweep.studyfile.starter.python_text import parse_python
from sweep.studyfile.starter.r_script import read_r
from sweep.studyfile.starter.ranks import add_ranks
from sweep.studyfile.starter.shell_script import read_shell

STUDY_FILE = "study.yaml"
# What runs a script unchanged and reports what it logs: its module, and how that reads it.
READERS = {
    WANDB: (
        "sweep.integrations.wandb",
        "what W&B's own file has (offline, unless WANDB_MODE or WANDB_API_KEY is set)",
    ),
    TENSORBOARD: ("sweep.integrations.tensorboard", "what TensorBoard's event files have"),
}
LIKELY_SCRIPTS = ("train.py", "main.py")


@dataclass(frozen=True)
class Written:
    """What ``init`` made.

    Attributes:
        files: In the order in which they were written; the study file is the first.
        remarks: What the user should know or do, one sentence each.
    """

    files: list[Path]
    remarks: list[str]


def init(
    folder: Path, script: Path | None = None, source: Path | None = None, *, force: bool = False
) -> Written:
    """Write a study file (and, without a script of the user's, a small training) into a folder.

    Args:
        script: The user's script (Python, a notebook, a shell's, R); a ``train.py`` or ``main.py``
            in the folder is found.
        source: A W&B sweep file or a Hydra configuration to convert instead.
        force: Replace a study file that is there. Nothing else is ever replaced.

    Raises:
        InputError: A file is in the way, or script or source cannot be used. Nothing was written.
    """
    target = folder / STUDY_FILE
    if target.exists() and not force:
        raise InputError(f"{target} exists.", "Replace it with --force, or choose another folder.")
    extra: dict[Path, str] = {}
    if source:
        converted = convert(source)
        text, remarks = converted.text, converted.lost
    else:
        script = script or next(
            (folder / name for name in LIKELY_SCRIPTS if (folder / name).is_file()), None
        )
        if script:
            draft = draft_study(script, folder)
            text, remarks = write_draft(draft), draft.remarks
        else:
            text = _template(STUDY_FILE, folder)
            training = _template("train.py", folder)
            extra = {folder / "train.py": training}
            remarks = ["An example that runs as it is: replace train.py by your own training."]
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in {target: text, **extra}.items():
        write_output(path, content, "Choose another folder: --dir DIR.")
    return Written([target, *extra], remarks)


def _template(name: str, folder: Path) -> str:
    return templates.find(f"starter/{name}", folder).path.read_text(encoding="utf-8")


def draft_study(script: Path, folder: Path) -> Draft:
    """Guess a study from a script's flags and from what it prints.

    Args:
        folder: Where ``sweep launch`` will be called: the command names the script from there.
    """
    shown = os.path.relpath(script, folder) if folder.exists() else str(script)
    language = _find_language(script)
    if language is not None:
        return _draft_other(script, shown, language)
    interface = _find_interface(script, folder)
    module = find_module(script)
    is_module = module is not None and module[0].samefile(folder)
    start = ["python", "-m", module[1]] if module and is_module else ["python", escape(shown)]
    draft = _begin(shown, script, start)
    if module and not is_module:
        draft.remarks.append(
            f"Call sweep in {module[0]}, with python -m {module[1]} in the command: the script "
            "imports its own folder by name."
        )
    source = script.read_text(encoding="utf-8")
    interface = _leave_computed(draft, interface, source)
    _add_flags(draft, interface, source)
    metrics = _find_metrics(script, source)
    if interface.reports and not any(metric.pattern is None for metric in metrics):
        metrics = _report(draft, interface.reports, metrics)
    if metrics and metrics[0].logged in READERS:
        metrics = _read_logged(draft, metrics)
    _add_objective(draft, metrics)
    add_ranks(draft, source)
    return draft


def _read_logged(draft: Draft, metrics: list[Metric]) -> list[Metric]:
    """Have a logger's own files read by what runs the script; return the metrics as they come."""
    logger = metrics[0].logged
    module, how = READERS[logger]
    draft.command[1:1] = ["-m", module]
    draft.remarks.append(
        f"{metrics[0].name} is given to {'W&B' if logger == WANDB else logger} alone: {module} "
        f"runs the script, and reports {how}."
    )
    return [
        dataclasses.replace(one, pattern=None, logged="") for one in metrics if one.logged == logger
    ]


def _begin(shown: str, script: Path, start: list[str]) -> Draft:
    return Draft(
        f"A study of {shown}. What was guessed is marked; change it as you like, then: "
        f"sweep launch {STUDY_FILE}",
        make_name(script.stem),
        start,
        more={"trials": 20, "seed": 0, "sampler": "auto", "max_parallel": 4},
        notes={
            "max_parallel": "so many at once, at most",
            "space": "Guessed from names, defaults and choices of the flags: check the ranges.",
        },
        hints=list(HINTS),
    )


# What is no Python: by the file's ending, how it is read, and what is looked for in it.
_LANGUAGES: dict[str, tuple[Callable[[Path, str], OtherScript], str]] = {
    ".ipynb": (read_notebook, notebook.LOOKED_FOR),
    ".r": (read_r, r_script.LOOKED_FOR),
    **dict.fromkeys((".sh", ".bash", ".sbatch"), (read_shell, shell_script.LOOKED_FOR)),
}


def _find_language(script: Path) -> tuple[Callable[[Path, str], OtherScript], str] | None:
    """Return how a script that is no Python is read, or None."""
    if script.suffix.lower() in _LANGUAGES:
        return _LANGUAGES[script.suffix.lower()]
    if script.suffix == ".py":
        return None
    with script.open(encoding="utf-8", errors="replace") as stream:
        first = stream.readline(200)
    return _LANGUAGES[".sh"] if shell_script.SHEBANG.match(first) else None


def _draft_other(
    script: Path, shown: str, language: tuple[Callable[[Path, str], OtherScript], str]
) -> Draft:
    read, looked_for = language
    found = read(script, shown)
    draft = _begin(shown, script, found.start)
    draft.remarks += found.remarks
    if found.inner is not None:
        _add_flags(draft, _find_interface(found.inner), found.text + found.inner.read_text("utf-8"))
    else:
        add_arguments(draft, found, looked_for)
    _add_objective(draft, found.metrics)
    return draft


def _find_interface(script: Path, folder: Path = Path()) -> Interface:
    """Return what a script can be given, from a folder. Raises: InputError."""
    flags = []
    try:
        text = script.read_text(encoding="utf-8")
        tree = parse_python(text)
    except (OSError, SyntaxError, ValueError):
        scan(script)  # which says what is wrong
        raise
    trees = [tree]
    for path in imported(tree, script):
        try:
            trees.append(parse_python(path.read_text("utf-8", "replace")))
        except (SyntaxError, ValueError, RecursionError, OSError):
            continue
    found = read_interface(Sources(script, tree, text, trees, folder))
    if found is None:
        commands = [(name, one) for one in trees if (name := find_command(one))]
        for name, one in commands[:1]:
            others = [other for other in list_subcommands(one) if other != name]
            outer = find_outer(one)
            return Interface("argparse", scan(script), before=[name], outer=outer, others=others)
        return Interface("argparse or click", scan(script))
    # Some of them let a script add arguments of its own.
    is_whole = found.pairs or not found.prefix or found.name == "click"
    flags = [*found.flags, *(() if is_whole else read_source(tree))]
    return dataclasses.replace(found, flags=list({flag.option: flag for flag in flags}.values()))


def _leave_computed(draft: Draft, interface: Interface, source: str) -> Interface:
    """Return an interface without the options that the script itself sets, and name them."""
    computed = find_computed(parse_python(source))
    if interface.prefix != "--" or not computed:
        return interface
    names = {flag.option: _leaf(flag) for flag in interface.flags}
    found = [
        flag.option
        for flag in interface.flags
        if names[flag.option] in computed and guess_parameter(flag)
    ]
    if found:
        draft.remarks.append(f"Computed by the script, whatever it is given: {_list(found)}.")
    kept = [flag for flag in interface.flags if flag.option not in found]
    return dataclasses.replace(interface, flags=kept)


def _add_flags(draft: Draft, interface: Interface, source: str) -> None:
    own, missing = [], []
    arguments: list[str] = []
    outer: list[str] = []
    places: set[str] = set()
    # {params} would pass pairs as flags, too, and all behind the subcommand.
    is_each = bool(interface.pairs or interface.outer)

    def give(flag: Flag, value: str) -> None:
        target = outer if flag.option in interface.outer else arguments
        if flag.is_positional and interface.prefix:
            target.append(value)
        elif interface.joined:
            target.append(f"{flag.option}={value}")
        else:
            target.extend([flag.option, value])

    for flag in interface.flags:
        guessed = guess_parameter(flag)
        is_option = flag.option.startswith("--") or not interface.prefix
        simple = is_option and flag.type not in ("switch", "list")
        place = find_place(flag, interface.name)
        if simple and guessed:
            draft.space[flag.name] = guessed
            draft.notes[f"space.{flag.name}"] = _reason(flag)
        elif simple and is_effort(flag) and flag.default:  # 0: the script computes it
            draft.fixed[flag.name] = flag.default
        elif flag.type not in ("switch", "list", "bool") and place:
            give(flag, place)
            places.add(place)
        elif flag.required:
            missing.append(flag.option)
            give(flag, EDIT)
        else:
            own.append(flag.option)
        if is_each and flag.name in {*draft.space, *draft.fixed}:
            give(flag, f"{{{flag.name}}}")
    draft.command += [*outer, *interface.before]
    if interface.others:
        draft.remarks.append(
            f"Of the script's commands {interface.before[0]} was taken. It also "
            f"has {_list(interface.others)}."
        )
    pairs = _add_pairs(draft, interface, places)
    if not is_each and (draft.space or draft.fixed):
        draft.command.append(interface.spread)
        draft.notes["command"] = (
            "{params} stands for all of space and fixed, as --name=value. The values are also in "
            "the YAML file {config}."
            if interface.spread == "{params}"
            else f"{interface.spread} stands for all of space and fixed, as name=value."
        )
    option = [interface.pairs_option] if interface.pairs_option and pairs else []
    draft.command += [*arguments, *interface.after, *option, *pairs]
    if missing:
        draft.remarks.append(f"Replace {EDIT} in the command: the script needs {_list(missing)}.")
    if own:
        draft.remarks.append(f"Left as the script has them: {_list(own)}.")
    if "{seed}" not in places and not reads_seed(source):
        draft.remarks.append(NO_SEED)
    if not draft.space:
        draft.command.append(EDIT)
        draft.notes["space"] = (
            "No flag to vary was found. Add parameters here, such as lr: {type: float, low: 1e-4, "
            "high: 0.1, log: true}, and read them in the script: from the file that the variable "
            "SWEEP_CONFIG names, or as flags, with {params} in the command. With {} the command "
            "is repeated, each time with another seed ({seed})."
        )
        draft.remarks.append(
            f"No flag to vary was found in the script: see space, and replace {EDIT} in the "
            "command. Looked for: argparse (also in modules that it imports), click, Typer, Fire, "
            "absl, tyro, draccus, pyrallis, simple-parsing, jsonargparse, HfArgumentParser, Hydra, "
            "LightningCLI, ml_collections, yacs, merge_from_args, and globals that arguments "
            "replace."
        )


def _add_pairs(draft: Draft, interface: Interface, places: set[str]) -> list[str]:
    """Add what is given as name and value; return these words, at the command's end."""
    words: list[str] = []
    # What a flag says as well; and of several architectures only one is used.
    varied = [flag for flag in interface.pairs if guess_parameter(flag)]
    leaves = [_leaf(flag) for flag in (*interface.flags, *varied)]
    for flag in interface.pairs:
        guessed, place = guess_parameter(flag), find_place(flag, interface.name)
        if guessed and leaves.count(_leaf(flag)) > 1:
            continue
        # Its library takes no value of another type.
        is_its = guessed and (guessed["type"] != "float" or isinstance(flag.default, float))
        if guessed and is_its:
            draft.space[flag.name] = guessed
            draft.notes[f"space.{flag.name}"] = _reason(flag)
            value = f"{{{flag.name}}}"
        elif is_effort(flag):
            draft.fixed[flag.name] = flag.default
            value = f"{{{flag.name}}}"
        elif place and place != "{resume}" and flag.type in ("int", "str"):
            places.add(place)
            value = place
        else:
            continue
        words += [flag.name, value]
    return words


def _leaf(flag: Flag) -> str:
    return flag.name.rpartition(".")[2].lower().replace("-", "_")


def _list(words: Sequence[str]) -> str:
    return ", ".join(words)


def _reason(flag: Flag) -> str:
    if flag.choices:
        return "the script's choices"
    return f"the script's default is {flag.default}" if flag.default is not None else "guessed"


def _find_metrics(script: Path, source: str) -> list[Metric]:
    """Return the metrics of a script; where it shows none itself, of the modules it imports."""
    tree = parse_python(source)
    found = find_metrics(tree, source)
    for path in () if found else imported(tree, script):
        text = path.read_text("utf-8", "replace")
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            found += find_metrics(parse_python(text), text)
    return found


def _report(draft: Draft, argument: str, metrics: list[Metric]) -> list[Metric]:
    """Have sweep's callback report what the script logs; return the metrics as they come then."""
    draft.command.append(argument)
    draft.remarks.append(f"{argument.partition('=')[2]} reports what the script logs, and saves.")
    logged = [metric for metric in metrics if metric.logged] or metrics
    return [dataclasses.replace(one, pattern=None, logged="") for one in logged]


def _add_objective(draft: Draft, metrics: list[Metric]) -> None:
    if not metrics:
        metrics = [Metric("val_loss", rf"val_loss\s*[=:]\s*{NUMBER}")]
        note = (
            "No metric was found in the script. Let it print a line such as val_loss=0.123 after "
            "each epoch, or report it: from sweep.report import Reporter; "
            "Reporter().log(step=epoch, val_loss=0.123), and then remove `from`."
        )
        draft.remarks.append("No metric was found in the script: see objective.")
    else:
        how = "prints" if metrics[0].pattern else "reports"
        note = f"Guessed: the first of what the script {how}."
        if metrics[0].logged:
            note = (
                f"The script gives it to {metrics[0].logged} and does not print it: print it as "
                f"{metrics[0].name}=0.123, or report it by sweep.integrations or "
                "sweep.report.Reporter and remove `from`."
            )
            draft.remarks.append(f"{metrics[0].name} is logged and not printed: see objective.")
            how = "logs"
        others = [metric.name for metric in metrics[1:6]]
        if others:
            note += f" It also {how} {_list(others)}."
        if metrics[0].is_test:
            note += " A search should not choose by the test set: let the script print the same "
            note += "of data that it holds out, and name that."
        if metrics[0].pattern and not metrics[0].logged:
            note += " Each matching line of the output is one more step."
    chosen = metrics[0]
    objective: dict[str, Any] = {"metric": chosen.name, "direction": chosen.direction}
    if chosen.pattern:
        objective["from"] = {"stdout": chosen.pattern}
    draft.objectives.append(objective)
    draft.notes["objective"] = note
