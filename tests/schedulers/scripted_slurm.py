"""Slurm's programs by their answers: what ``SlurmScheduler`` is given as ``run`` in tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sweep.schedulers.slurm.ask import Answer

CONFIG = (
    "AccountingStorageType   = accounting_storage/slurmdbd\nKillWait                = 5 sec\n"
    "MaxArraySize            = 1001\nSLURM_VERSION           = 22.05.8\n"
)
PARTITIONS = (
    "PartitionName=main AllocNodes=ALL Default=YES MaxTime=1-00:00:00 Nodes=n[1-4] State=UP\n"
    "PartitionName=gpu AllocNodes=login Default=NO MaxTime=UNLIMITED Nodes=n[1-4] State=UP\n"
    "PartitionName=short AllocNodes=ALL Default=NO DefaultTime=00:01:00 MaxTime=00:02:00 "
    "Nodes=n[1-4] State=UP\n"
    "PartitionName=none AllocNodes=ALL Default=NO MaxTime=00:00:00 Nodes=n[1-4] State=UP\n"
)
SILENCE = Answer("", "slurm_load_jobs error: Unable to contact slurm controller", 1)

Said = str | Answer | Callable[[Sequence[str]], "str | Answer"]


class ScriptedSlurm:
    """Answers each program; a list is used up answer by answer, its last one stays.

    Attributes:
        asked: Every command line, oldest first.
        environs: What each was given as its environment.
    """

    def __init__(self, **answers: Said | list[Said]) -> None:
        self.answers: dict[str, Said | list[Said]] = {"sacct": "", "squeue": "", **answers}
        self.asked: list[list[str]] = []
        self.environs: list[dict[str, str]] = []

    def __call__(self, argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Answer:
        self.asked.append(list(argv))
        self.environs.append(dict(env))
        if argv[:3] == ["scontrol", "show", "config"] and "config" not in self.answers:
            return Answer(CONFIG, "", 0)
        if argv[:3] == ["scontrol", "show", "partition"]:
            return Answer(PARTITIONS, "", 0)
        key = "config" if argv[:3] == ["scontrol", "show", "config"] else argv[0]
        said = self.answers.get(key, "")
        if isinstance(said, list):
            said = said.pop(0) if len(said) > 1 else said[0]
        if callable(said):
            said = said(argv)
        return Answer(said, "", 0) if isinstance(said, str) else said

    def of(self, program: str) -> list[list[str]]:
        """Return the command lines of one program, without its name."""
        return [argv[1:] for argv in self.asked if argv[0] == program]
