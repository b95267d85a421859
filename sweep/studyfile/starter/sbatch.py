"""A job-array script of Slurm as a study file: its ``#SBATCH`` lines, its lists, its command."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sweep.core.placeholders import EDIT, RESERVED, escape
from sweep.core.shell_text import split_words
from sweep.studyfile.starter.draft import HINTS, Draft, make_name
from sweep.studyfile.starter.hydra_multirun import read_multirun
from sweep.studyfile.starter.sbatch_around import (
    COMMAND,
    add_variables,
    as_slurm,
    leave_container,
    run_here,
    with_variables,
)
from sweep.studyfile.starter.sbatch_branches import read_branches
from sweep.studyfile.starter.sbatch_files import read_files
from sweep.studyfile.starter.sbatch_indexes import TASK, Picks, read_scalars, read_tasks
from sweep.studyfile.starter.sbatch_launchers import use_launcher
from sweep.studyfile.starter.sbatch_options import add_options, is_sbatch, read_options
from sweep.studyfile.starter.sbatch_points import BEYOND, bound, pair, pick_points, put_single
from sweep.studyfile.starter.sbatch_ran import Trainings, find_trainings, is_other
from sweep.studyfile.starter.sbatch_series import (
    are_alike,
    join_alike,
    leave_options,
    open_functions,
    open_jobs,
    read_submitted,
    split_commands,
)
from sweep.studyfile.starter.sbatch_text import (
    cut,
    find_loops,
    likeliest,
    number_names,
    put_in,
    read_setup,
    settle,
    straighten,
    without_numbers,
)
from sweep.studyfile.starter.sbatch_words import (
    WRAPPED,
    count_loops,
    find_lists,
    list_words,
    open_commands,
    part_elements,
    put_lists,
    read_shell_word,
)
from sweep.studyfile.starter.shell_script import SHEBANG

_SHELLS = (".sh", ".bash", ".slurm", ".sbatch", ".job")
_PICKED = re.compile(r"\$\{(\w+)\[([^\]]*)\]\}")
_VARIABLE = re.compile(r"^[ \t]*(?:export\s+)?(\w+)=(\"?\$\{\w+\[[^\]]*\]\}\"?)\s*$", re.MULTILINE)
_COMPUTED = re.compile(r"\$\(\(.*?\)\)")
_NAME = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def convert_sbatch(text: str, path: Path, lost: list[str]) -> Draft:
    """Return the study of a job-array script; what could not be carried over goes to ``lost``."""
    text = as_slurm(open_jobs(text), lost)
    said: list[str] = []
    draft, tasks = _convert(text, path, said, None)
    said, draft = _hold_against(text, path, said, draft, tasks)
    lost += said
    return draft


def _hold_against(
    text: str, path: Path, said: list[str], draft: Draft, tasks: list[int] | None
) -> tuple[list[str], Draft]:
    """Return a draft, or the one of what the script is seen to run where that is something else."""
    is_open = tasks is None  # then the first ones are taken
    if any(word.startswith("hydra.run.dir=") for word in draft.command):
        return said, draft
    if is_open and not any(EDIT in word for word in draft.command):
        return said, draft
    tasks = list(range(10)) if tasks is None else tasks
    body = WRAPPED.sub(r"\2\3", straighten(text))
    found = find_trainings(body, path.parent, tasks, {} if is_open else _counts(tasks))
    beyond = next((one for one in said if BEYOND in one), "")
    some_beyond = bool(beyond) and not re.match(r"--array: (\d+) of \1 tasks", beyond)
    if found is None or not is_other(draft, found) or (some_beyond and EDIT not in draft.command):
        return said, draft
    again: list[str] = []
    is_one = len(found.rows) > 1 and are_alike(found.rows)
    other = _convert(text, path, again, found)[0] if is_one else draft
    before, after = (sum(map(_edits, one.command)) for one in (draft, other))
    if other is draft or after > max(0, before - 1):
        if not before or (not draft.space and len(found.rows) > 1):
            shown = "; ".join(" ".join(row)[:100] for row in (found.rows[:1] + found.rows[1:][-1:]))
            said.append(
                f"the script runs {len(found.rows)} different commands, as far as it can be gone "
                f"through, and the study others: {shown}. Check command, space and points"
            )
            draft.command += [] if any(EDIT in word for word in draft.command) else [EDIT]
        return said, draft
    if len(found.rows) < len(tasks):
        count = f"{len(tasks)} tasks run {len(found.rows)} different commands, tried once each"
        again.append(f"--array: {count}")
    return again, other


def _edits(word: str) -> int:
    return word.count(EDIT)


def _convert(
    text: str, path: Path, lost: list[str], ran: Trainings | None
) -> tuple[Draft, list[int] | None]:
    """Return the study of a script, and the tasks of its array; None where these are not known.

    Args:
        ran: What it was seen to run, where that is to be taken.
    """
    body = open_functions(straighten(text))
    options = _read_options(text, body, path.parent, lost)
    draft = Draft(
        f"Made from the {'job script' if is_sbatch(text) else 'script'} {path.name}.",
        make_name(options.get("job-name") or path.stem),
        [],
        hints=list(HINTS),
        objectives=[{"metric": "val_loss", "direction": "minimize"}],
    )
    tasks = read_tasks(options.get("array", ""))
    branches = read_branches(body, settle(read_scalars(body)), tasks)
    tasks = [task for task in tasks if task not in branches.ended]
    body = open_commands(branches.body)
    files = read_files(body, path.parent, settle(read_scalars(body)), tasks)
    body = number_names(files.body)
    picked = {found[1]: found[2].strip('"') for found in _VARIABLE.finditer(body)}
    scalars = settle(read_scalars(body) | _counts(tasks))
    lists = _read_lists(body, scalars) | files.lists
    body = put_in(
        body,
        {
            name: value
            for name, value in scalars.items()
            if not re.search(r"[$`]", value) and name not in picked
        },
    )
    lines = [(found[1], cut(found[2])) for found in COMMAND.finditer(body)]
    commands = [line for _, line in lines]
    taken = likeliest(commands) if commands else -1
    variables, line = lines[taken] if lines else ("", f"python {EDIT}")
    outside = leave_container(body, line, lost)
    loops = find_loops(body, lines[taken][1], lists) if lines else {}
    line = put_in(with_variables(variables, leave_options(line), lost), picked)
    alike: list[int] = []
    given = tasks or branches.tasks or files.tasks
    if ran is not None:
        line, turns, alike = join_alike(ran.rows, 0, lists, lost)
        variables, loops, commands = ran.settings, {}, [line, *ran.others]
        taken, alike = 0, [0]
    else:
        line, turns = count_loops(put_lists(line, lists), loops, lists, scalars)
    is_task = bool(tasks or turns or loops) or any(TASK in one for one in commands)
    if lines and not is_task and ran is None:
        plain = [
            line if place == taken else leave_options(one) for place, one in enumerate(commands)
        ]
        line, turns, alike = join_alike(split_commands(plain), taken, lists, lost)
    loops = {} if turns else loops
    is_open = not tasks and (not turns or (ran is not None and TASK in branches.body))
    tasks = tasks or turns
    all_tasks = (
        (turns if ran is not None else tasks) or branches.tasks or files.tasks or list(range(10))
    )
    # What is read from files was parted where it was read.
    own = {name: values for name, values in lists.items() if name not in files.lists}
    line = part_elements(line, own, Picks(own, scalars, all_tasks), lost)
    lists |= own
    picks = Picks({**lists, **loops}, scalars, all_tasks, set(loops))
    draft.command = run_here(_command(draft, line, picks, lost), lost)
    is_hydra = not picks.indexes and read_multirun(draft, path, lost)
    if is_open and picks.indexes:
        which = f"tasks {min(given or all_tasks)} to {max(given or all_tasks)} were taken"
        lost.append(f"--array: is not in the script; {which}")
    others = [one for place, one in enumerate(commands) if place not in (taken, *alike)]
    if alike and ran is None:
        twice = len(alike) - len(turns)
        lost.append(
            f"the script runs {len(alike)} commands that differ in their arguments, one after the "
            "other; each became a trial: where one needs what another has made, take them apart"
            + (f"; {twice} that are there twice were taken once" if twice else "")
        )
    if others:
        shown = ", ".join(without_numbers(one)[:60] for one in others[:3])
        lost.append(f"the script runs {len(commands)} commands; left out: {shown}")
    if ran is not None:
        pass
    elif files.unread or re.search(r"\b(sed|awk|head)\b[^\n]*SLURM_ARRAY_TASK_ID", body):
        lost.append(
            "the lines of a file: each task reads its own"
            + "".join(f"; {text}" for text in files.unread)
            + ". Make the file a CSV with names in its first line, and write points: file.csv"
        )
    indexes = picks.indexes
    if indexes and picks.looped:
        # What a task picks is as many combinations again for each turn of its loop.
        lost.append(
            f"{', '.join(picks.looped)}: goes through a loop within each task; here all "
            "combinations with what tasks pick are tried, one a trial"
        )
        pair(draft, {}, lost)
        bound(draft, picks)
    elif indexes and pick_points(draft, indexes, picks.tasks, scalars, lists, lost):
        draft.more.setdefault("seed", 0)
    elif not is_hydra:
        pair(draft, indexes, lost)
    bound(draft, picks)
    put_single(draft)
    if indexes:
        read_multirun(draft, path, lost)
    launched = draft.more.keys() & {"resources", "slurm"}
    is_ranked = any(
        re.search(r"srun|SRUN|mpirun|mpiexec", one[0]) for one in COMMAND.finditer(body)
    )
    add_options(draft, {} if launched else options, lost, is_ranked=is_ranked)
    use_launcher(draft, lost)
    if launched and options:
        lost.append(
            "#SBATCH lines: Hydra's launcher asks for what a trial needs; they were left out"
        )
    if re.search(r"\bwandb\s+agent\b", text):
        lost.append(
            "wandb agent: W&B's server chooses its values; convert the file of that sweep (sweep "
            "init --from sweep.yaml), and copy resources and slurm from here"
        )
    own_lines = [one for line in lines for one in line if one]
    if re.search(r"^[ \t]*\{%|\{%-? \w+ .*%\}|\{\{ ?[\w.]+ ?\}\}", text, re.M):
        draft.command += [] if EDIT in draft.command else [EDIT]
        lost.append(f"{path.name} is a template; convert what is made of it, or replace {EDIT}")
    setup = read_setup(outside, own_lines + (ran.sources if ran else []), lost)
    if setup:
        draft.more.setdefault("slurm", {})["setup"] = setup
    add_variables(draft, variables, lost)
    what = "a job array" if is_sbatch(text) else "the script"
    if len(draft.objectives) == 1 and draft.objectives[0]["metric"] == "val_loss":
        lost.append(f"objective: {what} compares nothing; name what the script prints or reports")
    is_known = bool(given) or TASK not in body
    return draft, given if is_known else None


def is_shell(text: str, path: Path) -> bool:
    """Tell whether a file is a script of a shell."""
    return path.suffix in _SHELLS or SHEBANG.match(text) is not None


def _read_options(text: str, body: str, folder: Path, lost: list[str]) -> dict[str, str]:
    """Return the options of sbatch: of a job script's own lines, else of what a script submits."""
    plain = {
        name: value
        for name, value in settle(read_scalars(body)).items()
        if not re.search(r"[$`]", value)
    }
    return read_submitted(put_in(body, plain), folder, lost) | read_options(text)


def _counts(tasks: list[int]) -> dict[str, str]:
    """Return Slurm's variables about the array as a whole."""
    if not tasks:
        return {}
    counts = {"COUNT": len(tasks), "MIN": min(tasks), "MAX": max(tasks)}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in counts.items()}


def _read_lists(body: str, scalars: dict[str, str]) -> dict[str, list[Any]]:
    """Return the arrays of a script whose elements are known."""
    plain = {name: value for name, value in scalars.items() if not re.search(r"[$`]", value)}
    found = {n: list_words(put_in(text, plain)) for n, text in find_lists(body).items()}
    return {n: [read_shell_word(w) for w in words] for n, words in found.items() if words}


def _command(draft: Draft, line: str, picks: Picks, lost: list[str]) -> list[str]:
    """Return the command with placeholders for what each task picks for itself."""
    kept: list[tuple[str, str, bool]] = []

    def keep(name: str, expression: str, *, is_list: bool = False) -> str:
        kept.append((name, expression.replace("\2", " "), is_list))
        return f"\0{len(kept) - 1}\1"

    def put(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        value = picks.scalars.get(name)
        if name in picks.loops:
            return keep(name, "", is_list=True)
        if name == TASK or (value is not None and picks.is_number(value)):
            return keep(name, value or name)
        return match[0] if value is None or re.search(r"`|\$\((?!\()", value) else value

    line = re.sub(r"\$\((?!\()[^()]*\)|`[^`]*`", lambda m: m[0].replace(" ", "\2"), line)
    # What varies is kept apart, as an index may hold spaces, at which the line would be split.
    for _ in range(5):
        line = _PICKED.sub(lambda match: keep(match[1], match[2], is_list=True), line)
        line = _COMPUTED.sub(lambda m: keep("", m[0]) if picks.is_number(m[0]) else m[0], line)
        line = _NAME.sub(put, line)
    # What is left of them is not known.
    line = re.sub(r"\$\(\(.*?\)\)", lambda m: m[0].replace(" ", "\2"), line)
    try:
        words = split_words(line)
    except ValueError:
        return [EDIT]
    found: list[str] = []
    for i, word in enumerate(words):
        before = words[i - 1] if i else ""
        option = word.partition("=")[0] if word.startswith("-") and "=" in word else before
        name = re.sub(r"\W+", "_", option.lstrip("-")) if option.startswith("-") else ""
        value = word.partition("=")[2] if option != before else word
        pieces = []
        inner = re.sub(r"\x00(\d+)\x01", lambda m: kept[int(m[1])][1] or kept[int(m[1])][0], word)
        if re.search(r"\$\((?!\()|`", re.sub(r"\$\(\(.*?\)\)", "", inner)) and "\0" in word:
            shown = without_numbers(inner.replace("\2", " "))[:80]
            lost.append(f"command: {shown} is not known without running it; replace {EDIT}")
            found.append(EDIT)
            continue
        for piece in re.split(r"(\x00\d+\x01)", word):
            if piece.startswith("\0"):
                own, expression, is_list = kept[int(piece[1:-1])]
                # Of a text with more in it the option is not the name.
                pieces.append(
                    _add(
                        draft,
                        name if value == piece else "",
                        own,
                        expression,
                        picks,
                        lost,
                        is_list=is_list,
                    )
                )
            elif re.search(r"\$\(|`", piece):
                shown = without_numbers(piece.replace("\2", " "))
                lost.append(f"command: {shown} is not known without running it; replace {EDIT}")
                pieces.append(EDIT)
            elif "$" in piece:
                shown = without_numbers(piece)
                lost.append(f"command: {shown} holds a variable; replace {EDIT}")
                rest = re.sub(r"\$(?:\{\w+\}|\w+)", EDIT, piece)
                pieces.append(EDIT if "$" in rest else escape(rest))
            else:
                pieces.append(escape(piece))
        found.append("".join(pieces))
    return found


def _add(
    draft: Draft,
    option: str,
    own: str,
    expression: str,
    picks: Picks,
    lost: list[str],
    *,
    is_list: bool,
) -> str:
    """Add what a task picks; return what stands in the command.

    Args:
        option: The name that it is passed by; "" where none is told.
        own: The list of which it picks, or the variable that has its number.
    """
    values = picks.lists.get(own) if is_list else None
    if is_list and not values:
        name = option or own
        lost.append(f"{name}: its list is not known without running the script; replace {EDIT}")
        return EDIT
    of_loop = own in picks.loops
    plain = re.sub(r"__\d+(?=_|$)", "", own).lower()
    if own == TASK or plain in RESERVED:
        plain = "task"
    if of_loop and values is not None and len(values) == 1:
        return escape(str(values[0]))
    name = option or plain or "task"
    if name in RESERVED:
        name = f"{name}_value" if is_list else "task"
    if values and re.fullmatch(r"\d+", expression.strip()) and int(expression) < len(values):
        return escape(str(values[int(expression)]))
    if values:  # a choice that is there twice would be tried twice
        values = [one for i, one in enumerate(values) if one not in values[:i] or not of_loop]
    entry = {"type": "categorical", "choices": values} if values else {"type": "int"}
    for known, index in (picks.looped if of_loop else picks.indexes).items():
        if index == (own if of_loop else expression) and draft.space[known] == entry:
            return f"{{{known}}}"
    number = 2
    while name in draft.space:
        name, number = f"{name.rstrip('0123456789')}{number}", number + 1
    draft.space[name] = entry
    if of_loop:
        picks.looped[name] = own
    else:
        picks.indexes[name] = expression
    return f"{{{name}}}"
