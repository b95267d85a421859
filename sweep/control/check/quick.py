"""The cheap half of a check: what can be said in well under a second without a job.

``launch`` asks it each time. It says nothing where all is well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweep.control.check import (
    facts,
    judge_node,
    judge_services,
    patterns,
    pointers,
    probes,
    reach,
    requirements,
    sharing_gpus,
    trackers,
)
from sweep.control.check.lines import FAILED, WARNING, Line, judged, table
from sweep.core.dependencies import refuse_too_old
from sweep.core.errors import DamagedFile, SweepError
from sweep.core.executors import kind_of, slots_of
from sweep.core.files import read_json
from sweep.core.paths import Runs, StudyFolder
from sweep.core.study import Study
from sweep.search import hub
from sweep.training.command.preflight import check_command

MOST_HASHED_BYTES = 100 << 20  # a tenth of a second
DATABASE_S = 3.0


def check_startable(
    study: Study, environ: Mapping[str, str], folder: StudyFolder | None = None
) -> str:
    """Refuse a study whose command, or whose search, could not start here.

    Args:
        folder: The study's, which may have what was fetched for it.

    Returns:
        What is to be known of a sampler of the user's own; "" where there is nothing.

    Raises:
        InputError: The command cannot be started, its data were not fetched, or the sampler cannot
            search this space.
        SweepError: A package that the sampler, the terminator or a tracker needs is missing, or one
            that sweep needs is too old.
    """
    refuse_too_old()
    pointers.refuse_unfetched(study)
    check_command(study, environ)
    hubs = {"the study's folder": folder.hub} if folder else {}
    return requirements.check(study, {**hubs, "the cache": hub.cache_folder(environ)})


def look(study: Study, runs: Runs, url: str | None, environ: Mapping[str, str]) -> list[Line]:
    """Return the lines of what launch can see by itself.

    Args:
        study: Whose executor is decided.
        url: Of the database, or None for the embedded server, which starts at launch.
        environ: The environment that training will inherit.
    """
    missing = "not asked by launch"
    lines = [
        *reach.look(study),
        *patterns.look(study),
        *pointers.look(study),
        *sharing_gpus.look(study),
        *trackers.look(study, runs.study(study.name).root, environ),
        judged(
            "image",
            facts.ask_image(study, recorded_digest(study, runs), MOST_HASHED_BYTES),
            lambda fact: judge_node.image(fact, may_change=True),
            missing,
        ),
        judged(
            "binds", facts.ask_binds(study.environment, study.workdir), judge_node.binds, missing
        ),
        judge_node.space(
            probes.ask_space(runs.study(study.name).root, write=False), trials=study.trials
        ),
    ]
    if study.notify.email and not kind_of(study).sends_mail:
        said = f"no mail is sent: {kind_of(study).place} sends none"
        advice = "Let notify.command send one, or run the study on Slurm."
        lines.append(Line("notify", WARNING, said, advice))
    if url is None and study.storage.listen and not kind_of(study).keeps_database_in_job(study):
        folder = runs.postgres
        fact = probes.ask_embedded(folder, elsewhere=True, listen=study.storage.listen)
        if fact.get("error"):
            lines.append(judge_services.database(fact))
    if url is not None:
        fact = probes.ask_database(url, DATABASE_S)
        if not fact["error"]:  # launch opens it next, and says best what is wrong
            lines.append(judge_services.database(fact))
            lines.append(judge_connections(study, fact))
    return lines


def judge_connections(study: Study, fact: Mapping[str, Any]) -> Line:
    """Return the line on connections; each worker holds one."""
    workers = study.parallel
    if study.tasks is not None and study.resources.share is None:
        workers = min(workers, study.tasks * slots_of(study))
    is_cap = study.max_parallel is not None or study.tasks is not None
    return judge_services.connections(fact, workers, is_cap=is_cap)


def recorded_digest(study: Study, runs: Runs) -> str | None:
    """Return the image's digest as the last launch recorded it, or None."""
    try:
        record = read_json(runs.study(study.name).provenance) or {}
        if record["environment"]["image"] != study.environment.image:
            return None  # another image, by the study file's own word
        return str(record["environment"]["image_sha256"])
    except (KeyError, TypeError, DamagedFile):
        return None


class CheckFailed(SweepError):
    """A check found what would fail on the nodes."""


def refuse(lines: Sequence[Line]) -> list[Line]:
    """Return the warnings among the lines.

    Raises:
        CheckFailed: Some have failed; nothing was made.
    """
    bad = [line for line in lines if line.state == FAILED]
    if bad:
        raise CheckFailed(
            f"Nothing was launched, because this would fail:\n{table(bad)}",
            "All of it, asked on a node: sweep check STUDY --on-node. Launch all the same: "
            "--no-check.",
        )
    return [line for line in lines if line.state == WARNING]
