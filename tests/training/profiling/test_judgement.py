"""Symptoms and what they mean: a table of cases, each with one cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweep.training.profiling.judgement import (
    BATCH,
    CAUSES,
    COMMUNICATION,
    COMPUTING,
    CPUS,
    FILES,
    LAUNCH,
    LOADER,
    MEMORY,
    NOT_KNOWN,
    REMEDIES,
    judge,
)
from sweep.training.profiling.symptoms import Symptoms

# What is seen of a training on an H200 that computes, and of one on eight cores.
ON_GPU: dict[str, Any] = {
    "seen_s": 60.0,
    "looks": 240,
    "gpus": 1,
    "cores": 8.0,
    "cpu_cores": 1.1,
    "main_busy": 0.5,
    "main_waits": 0.4,
    "files": 0.0,
    "loaders": 4.0,
    "loader_cores": 0.6,
    "read_bytes_s": 2e6,
    "written_bytes_s": 1e3,
    "faults_s": 0.0,
    "rss_bytes": 6 * 2**30,
    "memory_bytes": 64 * 2**30,
    "gpu_busy": 0.97,
    "gpu_traffic": 0.4,
    "gpu_memory": 0.6,
    "gpu_power": 0.85,
    "stack_looks": 60,
    "stack_data": 0.03,
    "stack_communication": 0.0,
}
ON_CPU = {
    **{k: v for k, v in ON_GPU.items() if not k.startswith("gpu")},
    "cpu_cores": 7.4,
    "main_busy": 0.95,
    "main_waits": 0.05,
}
NO_STACKS = {"stack_looks": 0, "stack_data": None, "stack_communication": None}
FOUR = {"ranks": 4}

CASES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("a GPU at work", ON_GPU, {}, COMPUTING),
    ("the same, power not known", ON_GPU, {"gpu_power": None}, COMPUTING),
    ("eight cores at work", ON_CPU, {}, COMPUTING),
    ("cores at work, for what is not known", ON_CPU, NO_STACKS, NOT_KNOWN),
    ("GPU waits for the loader", ON_GPU, {"gpu_busy": 0.3, "stack_data": 0.65}, LOADER),
    ("just below", ON_GPU, {"stack_data": 0.19}, COMPUTING),
    ("just enough", ON_GPU, {"stack_data": 0.2}, LOADER),
    ("as it reports itself", ON_GPU, {"own_data": 0.5, "stack_data": 0.0}, LOADER),
    (
        "it reports none, whatever stacks say",
        ON_GPU,
        {"own_data": 0.01, "own_communication": 0.0, "own_compute": 0.95, "stack_data": 0.6},
        COMPUTING,
    ),
    ("loader on CPUs", ON_CPU, {"stack_data": 0.9, "main_busy": 0.1, "cpu_cores": 0.2}, LOADER),
    (
        "busy loaders, seen by their processes alone",
        ON_GPU,
        {**NO_STACKS, "gpu_busy": 0.3, "main_waits": 0.7, "loader_cores": 3.9},
        LOADER,
    ),
    (
        "the same with four ranks: it may wait for others",
        ON_GPU,
        {**NO_STACKS, **FOUR, "gpu_busy": 0.3, "main_waits": 0.7, "loader_cores": 3.9},
        NOT_KNOWN,
    ),
    ("too few stacks count as none", ON_CPU, {"stack_looks": 19, "stack_data": 0.9}, NOT_KNOWN),
    ("a slow disk", ON_CPU, {"files": 0.8, "main_busy": 0.1, "cpu_cores": 0.3}, FILES),
    ("a slow disk behind the loader", ON_GPU, {"files": 0.5, "stack_data": 0.9}, FILES),
    ("a loader that computes and reads", ON_GPU, {"files": 0.25, "stack_data": 0.9}, LOADER),
    ("a slow disk, without stacks", ON_GPU, {**NO_STACKS, "files": 0.4}, FILES),
    ("exchanges", ON_GPU, {**FOUR, "stack_communication": 0.5}, COMMUNICATION),
    ("exchanges, as it reports", ON_GPU, {**FOUR, "own_communication": 0.3}, COMMUNICATION),
    (
        "exchanges, for a rank loads slowly",
        ON_GPU,
        {**FOUR, "stack_communication": 0.4, "stack_data": 0.45},
        LOADER,
    ),
    (
        "files of ranks that mostly exchange",
        ON_GPU,
        {**FOUR, "stack_communication": 0.5, "files": 0.25},
        COMMUNICATION,
    ),
    ("bandwidth", ON_GPU, {"gpu_traffic": 0.8}, MEMORY),
    ("a node's memory is full", ON_CPU, {"rss_bytes": 63 * 2**30, "faults_s": 40.0}, MEMORY),
    ("full without coming back from a disk", ON_CPU, {"rss_bytes": 63 * 2**30}, COMPUTING),
    (
        "tiny kernels",
        ON_GPU,
        {"gpu_busy": 0.35, "main_busy": 1.0, "gpu_power": 0.3, "gpu_memory": 0.05},
        LAUNCH,
    ),
    (
        "tiny kernels, or loading: without stacks they look the same",
        ON_GPU,
        {**NO_STACKS, "gpu_busy": 0.35, "main_busy": 1.0, "main_waits": 0.0},
        NOT_KNOWN,
    ),
    (
        "tiny kernels, as it reports",
        ON_GPU,
        {"own_compute": 0.3, "own_data": 0.02, "own_communication": 0.0, "gpu_busy": 0.3},
        LAUNCH,
    ),
    ("tiny operations", ON_CPU, {"main_busy": 0.97, "cpu_cores": 1.0}, LAUNCH),
    ("one core is all it has", ON_CPU, {"cores": 1.0, "cpu_cores": 1.0}, COMPUTING),
    ("a small batch", ON_GPU, {"gpu_busy": 0.9, "gpu_power": 0.35, "gpu_memory": 0.1}, BATCH),
    (
        "little power with a full memory is no small batch",
        ON_GPU,
        {"gpu_busy": 0.9, "gpu_power": 0.35, "gpu_memory": 0.9},
        NOT_KNOWN,
    ),
    (
        "a small batch, or ranks that wait for each other",
        ON_GPU,
        {**NO_STACKS, **FOUR, "gpu_busy": 0.9, "gpu_power": 0.35, "gpu_memory": 0.1},
        NOT_KNOWN,
    ),
    (
        "others have the cores",
        ON_CPU,
        {"main_busy": 0.4, "main_waits": 0.0, "main_delayed": 0.6, "cpu_cores": 0.4},
        CPUS,
    ),
    (
        "others have the cores, as it reports",
        ON_CPU,
        {
            "own_compute": 0.37,
            "own_data": 0.04,
            "own_communication": 0.0,
            "main_busy": 0.28,
            "main_waits": 0.04,
            "main_delayed": 0.7,
            "cpu_cores": 0.3,
        },
        CPUS,
    ),
    ("it sleeps", ON_CPU, {"main_busy": 0.0, "main_waits": 1.0, "cpu_cores": 0.0}, NOT_KNOWN),
    ("GPUs of which nothing is heard", {**ON_CPU, "gpus": 1}, {}, NOT_KNOWN),
    ("too short", ON_GPU, {"looks": 19}, NOT_KNOWN),
    ("nothing seen", {}, {"looks": 240}, NOT_KNOWN),
]


@pytest.mark.parametrize(("seen", "cause"), [({**a, **b}, c) for _, a, b, c in CASES],
                         ids=[title for title, *_ in CASES])  # fmt: skip
def test_a_case(seen: dict[str, Any], cause: str) -> None:
    """One cause, with evidence and what would help."""
    found = judge(Symptoms(**seen))
    assert found.cause == cause, found
    assert found.evidence and all(found.evidence) and found.remedy
    assert found.cause != NOT_KNOWN or found.remedy not in REMEDIES.values()


RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())


@pytest.mark.parametrize("one", RECORDED, ids=[one["planted"] for one in RECORDED])
def test_what_was_seen_of_whole_trainings(one: dict[str, Any]) -> None:
    """Planted causes, on two cores that had ``load`` others (tests/e2e/test_held_back.py)."""
    assert judge(Symptoms.from_data(one["seen"])).cause == one["cause"]


def test_every_cause_has_a_case_and_a_remedy() -> None:
    assert {cause for *_, cause in CASES} == set(CAUSES)
    assert set(REMEDIES) == set(CAUSES) - {NOT_KNOWN}


def test_the_evidence_has_the_numbers() -> None:
    found = judge(Symptoms(**{**ON_GPU, "gpu_busy": 0.3, "stack_data": 0.65}))
    assert found.evidence == (
        "65% of the time goes into the next batch, in 60 of py-spy's looks",
        "4 processes that it has started use 0.6 CPUs",
        "the GPU is busy 30% of the time, draws 85% of its power, has 60% of its memory in use",
        "it reads 2.0 MB and writes 1.0 kB a second",
    )
    assert found.sentence.startswith("loader-bound: 65% of the time")


def test_symptoms_are_read_back() -> None:
    seen = Symptoms(**ON_GPU)
    assert Symptoms.from_data({**seen.to_data(), "of_later": 1}) == seen
