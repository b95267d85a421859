"""Rows, verdict, table and plan of a scaling study, from figures that trainings report."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.core.errors import InputError
from sweep.core.study import Ddp, Resources, Study
from sweep.tasks.side_runs.scaling import plan
from sweep.tasks.side_runs.scaling_figures import (
    bottleneck,
    compare,
    figures,
    pool,
    repeated,
    table,
)
from sweep.tasks.side_runs.scaling_report import markdown
from tests.training.test_command import make_study

STUDY = make_study(["python", "t.py"], executor="slurm", trials=30)


def row(ranks: int, rate: float, compute: float, communication: float, data: float) -> Any:
    shares = {
        "share_compute": compute,
        "share_communication": communication,
        "share_data": data,
        "share_other": 1 - compute - communication - data,
    }
    return {
        "ranks": ranks,
        "nodes": 1,
        "batch": 64,
        "samples_per_s": rate,
        "epoch_s": 1.0,
        "memory_gb": 2.0,
        **shares,
    }


def test_figures_of_a_training() -> None:
    """The first epoch warms up; the median of the rest; the last words on shares; most memory."""
    steps = [
        {"samples_per_s": 10.0, "epoch_s": 9.0, "memory_gb": 3.0},
        {
            "samples_per_s": 100.0,
            "epoch_s": 1.0,
            "share_compute": 0.5,
            "share_communication": 0.2,
            "share_data": 0.1,
            "memory_gb": 2.0,
        },
        {"samples_per_s": 120.0, "epoch_s": 1.2},
        {"samples_per_s": 110.0, "epoch_s": 1.1},
    ]
    found = figures(steps)
    assert found == {
        "samples_per_s": 110.0,
        "epoch_s": 1.1,
        "share_compute": 0.5,
        "share_communication": 0.2,
        "share_data": 0.1,
        "memory_gb": 3.0,
        "share_other": pytest.approx(0.2),
    }
    assert figures(steps[:1])["samples_per_s"] == 10.0
    assert set(figures([{"loss": 1.0}]).values()) == {None}


def test_speedup_and_efficiency() -> None:
    """Against the fewest ranks; where those failed, there is none."""
    rows = compare(
        [row(2, 100, 1, 0, 0), {"ranks": 3, "samples_per_s": None}, row(4, 150, 1, 0, 0)]
    )
    assert [(each["speedup"], each["efficiency"]) for each in rows] == [
        (1.0, 1.0),
        (None, None),
        (1.5, 0.75),
    ]
    assert "75.0%" in table(rows) and "-" in table(rows).splitlines()[3]
    rows = compare(
        [{"ranks": 1, "samples_per_s": None}, row(2, 100, 1, 0, 0), row(4, 150, 1, 0, 0)]
    )
    assert {(each["speedup"], each["efficiency"]) for each in rows} == {(None, None)}
    assert bottleneck(rows, "GPU").startswith("The training with 1 GPU gave no rate")
    assert compare([]) == []


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            [row(1, 100, 0.9, 0, 0), row(2, 195, 0.9, 0.05, 0)],
            "2 GPUs give 1.95 times the speed of 1: 98% of linear. Nothing limits much.",
        ),
        ([row(1, 100, 0.9, 0, 0), row(2, 120, 0.54, 0.4, 0)], "of what is lost is communication"),
        ([row(1, 100, 0.9, 0, 0), row(2, 120, 0.54, 0, 0.4)], "is waiting for data"),
        ([row(1, 100, 0.9, 0, 0), row(2, 120, 0.54, 0, 0)], "is waiting for the host program"),
        ([row(1, 100, 0.9, 0, 0), row(2, 120, 0.95, 0, 0)], "is compute"),
        ([row(1, 100, 0.2, 0, 0.7)], "With 1 GPU, waiting for data takes most of the time (70%)."),
        ([], "Nothing was measured."),
        ([{**row(1, 100, 1, 0, 0), "share_other": None}], "reports no shares"),
    ],
)
def test_the_bottleneck(rows: list[Any], sentence: str) -> None:
    """What an example costs more of, not what has the largest share."""
    assert sentence in bottleneck(compare(rows), "GPU")


def ran(ranks: int, *rates: float | str) -> dict[str, Any]:
    """Return one case of several trainings: of some the rate, of others why they failed."""
    machine = {
        "host": "n1",
        "cpu": "Xeon|6",
        "cpus": 8,
        "kernel": "6.1",
        "gpus": ["H200", "H200"],
        "packages": {"torch": "2.9"},
    }
    return pool(
        [
            {**row(ranks, 0, 0.9, 0, 0), "samples_per_s": None, "failed": rate, "machine": None}
            if isinstance(rate, str)
            else {**row(ranks, rate, 0.9, 0, 0), "failed": "", "machine": machine}
            for rate in rates
        ]
    )


def test_repeats() -> None:
    """Medians of those that did not fail; how far they lie apart, and how many failed."""
    one, two = ran(1, 100.0, 90.0, 104.0), ran(2, "out of memory", 150.0, 170.0)
    assert (one["samples_per_s"], one["failures"], one["spread"]) == (100.0, 0, 0.14)
    assert (two["samples_per_s"], two["failures"], two["spread"]) == (160.0, 1, 0.125)
    assert two["failed"] == "" and two["machine"]["host"] == "n1" and two["rates"] == [150, 170]
    rows = compare([one, two])
    assert rows[1]["speedup"] == 1.6 and rows[1]["efficiency"] == 0.8
    said = "1 of 6 trainings failed (17%); the rates of repeats lie at most 14.0% of their median "
    assert repeated(rows) == said + "apart."
    assert table(rows).splitlines()[3].split()[-3:] == ["12.5%", "1", "3"]
    near = compare([one, ran(2, 190.0, 190.0, 190.0)])
    assert repeated(near).endswith("no less than what the most ranks are away from linear.")


def test_repeats_that_fail() -> None:
    both = ran(2, "boom", "out of memory")
    assert both["failed"] == "boom" and both["reasons"] == ["boom", "out of memory"]
    assert (both["samples_per_s"], both["spread"], both["rates"]) == (None, None, [])
    assert repeated([both]).startswith("2 of 2 trainings failed (100%); too few are left")
    once = compare([ran(1, 100.0)])
    assert repeated(once) == "" and "spread" not in table(once)


def test_the_report_is_one_page() -> None:
    """Commands, environment, table, picture and conclusion; no text of theirs is markup."""
    rows = compare([ran(1, 100.0, 90.0), ran(2, "<b>boom</b>", "<b>boom</b>", 180.0)])
    text = markdown(
        {
            "study": "dig_its",
            "mode": "weak",
            "unit": "GPU",
            "repeats": 3,
            "rows": rows,
            "params": {"lr": 0.1, "api_token": "abc", "name": "a`b"},
            "made": "2026-03-01",
            "bottleneck": bottleneck(rows, "GPU"),
            "repeated": repeated(rows),
            "called": "sweep scaling study.yaml --gpus 1,2",
            "command": "python train.py\n```\n# x",
            "code": {"commit": "0123456789abcdef", "dirty": True},
        },
        "scaling-weak.png",
    )
    parts = [line for line in text.splitlines() if line.startswith("#")]
    assert parts == ["# dig\\_its: weak scaling", "## Commands", "## Environment", "## Result",
                     "## Conclusion"]  # fmt: skip
    assert "    sweep scaling study.yaml --gpus 1,2\n    python train.py\n    ```" in text
    assert "`lr=0.1`" in text and "abc" not in text and '`name="a\'b"`' in text
    assert "- code: commit `0123456789ab` with uncommitted changes" in text
    assert "- 8 CPUs, Xeon\\|6; 2 × H200; torch 2.9 (host n1, kernel 6.1)" in text
    assert "- 2: 2 of 3 failed: \\<b\\>boom\\</b\\>" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 4 and len({line.count("|") for line in lines}) == 1
    assert "![Speed and shares of the time](scaling-weak.png)" in text
    assert text.endswith(repeated(rows) + "\n")


def test_what_is_run() -> None:
    """GPUs fill nodes; CPUs go with the ranks; weak scaling grows the batch."""
    study = dataclasses.replace(STUDY, resources=Resources(nodes=1, gpus="a100:2", cpus=16))
    cases = plan(study, [4, 1, 8], {"bs": 32}, on_gpus=True, mode="weak", batch="bs", per_node=4)
    assert [
        (
            case.ranks,
            case.params["bs"],
            case.batch,
            case.study.resources.nodes,
            case.study.resources.gpus,
            case.study.resources.cpus,
            case.study.world,
        )
        for case in cases
    ] == [
        (1, 32, 32, 1, "a100:1", 8, 1),
        (4, 128, 128, 1, "a100:4", 32, 4),
        (8, 256, 256, 2, "a100:4", 32, 8),
    ]
    cases = plan(STUDY, [1, 2], {"bs": 32}, on_gpus=False, mode="strong", batch="bs")
    assert [(case.batch, case.study.ddp, case.study.trials) for case in cases] == [
        (32, Ddp(ranks_per_node=1), 1),
        (32, Ddp(ranks_per_node=2), 1),
    ]


def test_one_launcher_starts_all_rows() -> None:
    """That of the most ranks: what one costs must not look like what scaling costs."""

    def launchers_of(counts: list[int], **more: Any) -> list[str]:
        given = {"on_gpus": False, "mode": "strong", "batch": "bs", **more}
        return [case.study.launcher for case in plan(STUDY, counts, {"bs": 32}, **given)]

    assert launchers_of([1]) == ["python"]
    assert launchers_of([1, 2]) == launchers_of([1, 2], on_gpus=True) == ["torchrun", "torchrun"]
    with pytest.raises(InputError, match="starts its processes itself"):
        plan(
            dataclasses.replace(STUDY, command=("uv", "run", "torchrun", "train.py")),
            [1, 2],
            {},
            on_gpus=False,
            mode="strong",
            batch="bs",
        )
    with pytest.raises(InputError, match=r"bash is no Python program") as caught:
        plan(
            dataclasses.replace(STUDY, command=("bash", "train.sh")),
            [1, 2],
            {},
            on_gpus=False,
            mode="strong",
            batch="bs",
        )
    assert "launcher: torchrun" in str(caught.value)


def refuse(study: Study, counts: list[int], **more: Any) -> str:
    given = {"on_gpus": True, "mode": "strong", "batch": "bs", **more}
    with pytest.raises(InputError) as caught:
        plan(study, counts, {"lr": 1}, **given)
    return str(caught.value)


def test_what_cannot_be_measured() -> None:
    """Said before anything runs."""
    assert "no whole number named 'bs'" in refuse(STUDY, [1], mode="weak")
    assert "6 processes do not fill nodes of 4" in refuse(STUDY, [1, 6], per_node=4)
    local = dataclasses.replace(STUDY, executor="local")
    assert "need a cluster" in refuse(local, [8], per_node=4)


def test_shares_count_each_moment_once() -> None:
    """Of the trainer's meter: compute hides communication, and both hide data."""
    pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")
    from trainer.meter import shares

    def event(name: str, start: float, end: float, device: str = "CPU") -> Any:
        span = SimpleNamespace(start=start * 1e6, end=end * 1e6)
        return SimpleNamespace(
            name=name, time_range=span, device_type=f"DeviceType.{device}", is_user_annotation=False
        )

    cpu = [
        event("aten::mm", 0, 4),
        event("aten::t", 1, 2),
        event("gloo:all_reduce", 3, 6),
        event("trainer: next batch", 5, 7),
        event("Optimizer.step", 0, 10),
    ]
    assert shares(cpu, 10.0, cuda=False) == pytest.approx(
        {"share_compute": 0.4, "share_communication": 0.2, "share_data": 0.1}
    )
    gpu = [
        event("gemm", 0, 5, "CUDA"),
        event("ncclDevKernel_AllReduce_Sum", 4, 6, "CUDA"),
        event("aten::mm", 0, 10),
        event("trainer: next batch", 8, 9),
    ]
    assert shares(gpu, 10.0, cuda=True) == pytest.approx(
        {"share_compute": 0.5, "share_communication": 0.1, "share_data": 0.1}
    )
