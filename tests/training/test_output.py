"""Objectives read from output as trainings print it: bars, tables, logs, odd numbers, odd bytes."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from sweep.core.paths import AttemptFolder
from sweep.core.study import Objective
from sweep.training import tail
from sweep.training.command.rank_labels import of_first
from sweep.training.journal import Journal
from sweep.training.output import NEWLINE, RETURN, Output
from sweep.training.tail import LONGEST_LINE_BYTES

ACC = "val_acc=([0-9.]+)"
THREE = [0.58, 0.66, 0.74]


def bar(description: str, done: int, total: int, values: str = "") -> str:
    """Return one drawing of tqdm's."""
    left = f"{description}: " if description else ""
    glyphs = "█" * (10 * done // total)
    more = f", {values}" if values else ""
    return f"\r{left}{100 * done // total:3d}%|{glyphs:<10}| {done}/{total} [00:01<00:01{more}]"


def clear() -> str:
    return "\r" + " " * 40 + "\r"


def batches(epoch: int, before: str, after: str, description: str = "epoch {}") -> str:
    """Return an epoch's bar, which shows the value of the epoch before until its end."""
    name = description.format(epoch)
    drawn = [bar(name, done, 5, before) for done in range(6)]
    return "".join([*drawn, bar(name, 5, 5, after)])


def post(value: float) -> str:
    return f"val_acc={value:.4f}"


def keras(epoch: int, value: float) -> str:
    drawn = "".join(
        f"\b\b\b\r\x1b[1m{n}/3\x1b[0m ━━━━ \x1b[1m0s\x1b[0m - loss: 0.5" for n in (1, 2, 3)
    )
    return f"Epoch {epoch}/3\n{drawn} - val_acc: {value:.4f}\n"


def lightning(epoch: int, before: str, after: str) -> str:
    """Return an epoch of Lightning's: bars are set back before they are renamed."""
    set_back = bar(f"Epoch {max(0, epoch - 1)}", 0, 5, before)
    validation = "".join(f"\n{bar('Validation', n, 2)}\x1b[A" for n in (0, 1, 2))
    return (
        set_back
        + batches(epoch, before, before, "Epoch {}")
        + validation
        + clear()
        + bar(f"Epoch {epoch}", 5, 5, after)
    )


def rich(epoch: int, value: float, again: bool) -> str:
    up = "\r\x1b[2K\x1b[1A\x1b[2K" if again else ""
    lines = [
        f"epochs \x1b[35m━━━╸\x1b[0m━ {33 * epoch + n}% {post(value)}\nsteps ━━━━ {n}%"
        for n in (0, 1)
    ]
    return up + "\r\x1b[2K\x1b[1A\x1b[2K".join(lines)


def each(template: str) -> str:
    return "".join(template.format(e=e, v=value) for e, value in enumerate(THREE))


# Name: (output, pattern, values at steps 0, 1, 2, …)
PRINTED: dict[str, tuple[str | bytes, str, list[float]]] = {
    "lines": (each("epoch {e} val_acc={v}\n"), ACC, THREE),
    "crlf": (each("epoch {e} val_acc={v}\r\n"), ACC, THREE),
    "no last end": (each("\nepoch {e} val_acc={v}"), ACC, THREE),
    "the same three times": ("val_acc=0.1\n" * 3, ACC, [0.1] * 3),
    "bar an epoch, and a line": (
        "".join(
            batches(e, before and post(before), post(v)) + clear() + post(v) + "\n"
            for e, (before, v) in enumerate(zip([0, *THREE], THREE, strict=False))
        ),
        ACC,
        THREE,
    ),
    "bar an epoch, and a line, the same value": (
        "".join(batches(e, post(0.1) * bool(e), post(0.1)) + f"\n{post(0.1)}\n" for e in range(3)),
        ACC,
        [0.1] * 3,
    ),
    "bar an epoch, the same value": (
        "".join(batches(e, post(0.1) * bool(e), post(0.1)) + "\n" for e in range(3)),
        ACC,
        [0.1] * 3,
    ),
    "one bar over epochs": (
        "".join(
            bar("", e, 3, before and post(before)) * 3 + bar("", e, 3, post(v))
            for e, (before, v) in enumerate(zip([0, *THREE], THREE, strict=False))
        )
        + bar("", 3, 3, post(0.74))
        + "\n",
        ACC,
        THREE,
    ),
    "lines behind a bar": (
        "".join(
            bar("", e, 3, before and post(before)) + post(v) + "\n"
            for e, (before, v) in enumerate(zip([0, *THREE], THREE, strict=False))
        )
        + bar("", 3, 3, post(0.74))
        + "\n",
        ACC,
        THREE,
    ),
    "tqdm.write": (
        "".join(bar("", e, 3) + clear() + f"epoch {e} [3/10] val_acc=0.1\n" for e in range(3)),
        ACC,
        [0.1] * 3,
    ),
    "a bar with three digits, a line with all": (
        "".join(
            bar("", e, 3, f"val_acc={v:.3g}") + clear() + f"epoch {e} val_acc={v}\n"
            for e, v in enumerate([0.58123, 0.66123, 0.74123])
        ),
        ACC,
        [0.58123, 0.66123, 0.74123],
    ),
    "nested bars": (
        "".join(
            "".join(f"{bar('', e, 3, post(v))}\n{bar('', n, 50)}\x1b[A" for n in range(0, 50, 10))
            for e, v in enumerate(THREE)
        ),
        ACC,
        THREE,
    ),
    "two bars with one name": (
        "".join(
            bar("outer", 1, 3, f"loss={before}") + bar("inner", n, 5, f"loss={after}")
            for n, before, after in [(1, 0.9, 0.8), (2, 0.9, 0.8), (3, 0.9, 0.7)]
        ),
        "loss=([0-9.]+)",
        [0.9, 0.8, 0.7],
    ),
    "lightning": (
        "".join(
            lightning(e, before and post(before), post(v))
            for e, (before, v) in enumerate(zip([0, *THREE], THREE, strict=False))
        )
        + "`Trainer.fit` stopped\n"
        + bar("Epoch 2", 5, 5, post(0.74))
        + "\n",
        ACC,
        THREE,
    ),
    "keras, a plateau": (
        keras(1, 0.58) + keras(2, 0.66) + keras(3, 0.66),
        "val_acc: ([0-9.]+)",
        [0.58, 0.66, 0.66],
    ),
    "keras in lines": (
        "".join(f"Epoch {e}/2\n5/5 - 1s - loss: 0.5 - val_acc: 0.6\n" for e in (1, 2)),
        "val_acc: ([0-9.]+)",
        [0.6, 0.6],
    ),
    "rich, drawn again": (
        "".join(rich(e, v, e > 0) for e, v in enumerate(THREE)) + "\n",
        ACC,
        THREE,
    ),
    "rich, in colours": (each("epoch {e} val_acc=\x1b[1;32m{v}\x1b[0m\n"), ACC, THREE),
    "a link and a title": (
        each("\x1b]0;training\x07\x1b]8;;http://x\x1b\\epoch {e}\x1b]8;;\x1b\\ val_acc={v}\n"),
        ACC,
        THREE,
    ),
    "a line drawn by hand": (
        "".join(
            f"\repoch {e} batch {n}/5 val_acc={v}" for e, v in enumerate(THREE) for n in range(5)
        )
        + "\n",
        ACC,
        THREE,
    ),
    "the cursor set back": (
        each("\x1b[2K\x1b[1Gbatch 3/5\x1b[2K\x1b[1Gepoch {e} val_acc={v}\n"),
        ACC,
        THREE,
    ),
    "backspaces": (each("epoch {e} val_acc=0.1\b\b\b{v}\n"), ACC, THREE),
    "ranks of torchrun": (
        "".join(
            f"[rank0]:{bar('', e, 3, post(v))[1:]}[rank1]:{bar('', e, 3, post(0.1))[1:]}"
            "[rank0]: \n[rank1]: \n"
            for e, v in enumerate(THREE)
        ),
        ACC,
        THREE,
    ),
    "nan": (
        "val_loss=nan\nval_loss=0.5\nval_loss=-inf\nval_loss=∞\n",
        "loss=([0-9.]+)",
        [math.nan, 0.5, -math.inf, math.inf],
    ),
    "nan is no word of info": ("info=3 loss=0.5\n", "loss=(.*)", [0.5]),
    "xgboost": (
        "[0]\ttrain-rmse:0.41\tvalidation-rmse:0.42\n[1]\ttrain-rmse:0.30\tvalidation-rmse:0.31\n",
        "validation-rmse:([0-9.]+)",
        [0.42, 0.31],
    ),
    "lightgbm, early stopping": (
        "[1]\tvalid_0's l2: 0.27\n[2]\tvalid_0's l2: 0.22\n"
        "Did not meet early stopping. Best iteration is:\n[2]\tvalid_0's l2: 0.22\n",
        "valid_0's l2: ([0-9.]+)",
        [0.27, 0.22],
    ),
    "nanogpt": (
        "step 0: train loss 4.2, val loss 4.3\niter 0: loss 4.2, time 3ms\n"
        "step 250: train loss 2.0, val loss 2.1\n",
        "val loss ([0-9.]+)",
        [4.3, 2.1],
    ),
    "fastai": (
        "epoch     train_loss  valid_loss  accuracy  time    \n"
        "\rEpoch 1/2 : |███-----| 12.50% [1/8 00:00<00:01]"
        "\r" + " " * 60 + "\r0         0.512345    0.412345    0.580000  00:03     \n"
        "1         0.412345    0.312345    0.660000  00:03     \n",
        r"^\d+\s+[\d.]+\s+[\d.]+\s+([\d.]+)",
        [0.58, 0.66],
    ),
    "ultralytics": (
        "\r    1/2    1.8G    1.1    11    640: 100%|██████████| 8/8 [00:01<00:00,  6.1it/s]\n"
        "      Class  Images  Instances   Box(P      R   mAP50  mAP50-95): 100%|████| 4/4\n"
        "        all     128        929    0.641  0.537   0.606     0.446\n",
        r"^\s+all(?:\s+[\d.]+){5}\s+([\d.]+)",
        [0.446],
    ),
    "caffe": (
        "I0101 12:00:00.1 7 solver.cpp:330] Iteration 100, Testing net (#0)\n"
        "I0101 12:00:00.2 7 solver.cpp:397]     Test net output #0: accuracy = 0.58\n",
        r"#\d+: accuracy = ([0-9.]+)",
        [0.58],
    ),
    "fairseq": (
        "2024-05-01 12:00:00 | INFO | valid | epoch 001 "
        "| valid on 'valid' subset | loss 3.1 | ppl 8.2\n",
        r"valid on .*loss ([0-9.]+)",
        [3.1],
    ),
    "mmengine": (
        "05/01 12:00:00 - mmengine - INFO - Epoch(train) [1][ 50/234]  lr: 1.0000e-02  loss: 0.5\n"
        "05/01 12:00:01 - mmengine - INFO - Epoch(val) [1][20/20]  accuracy/top1: 58.0\n",
        "accuracy/top1: ([0-9.]+)",
        [58.0],
    ),
    "espnet": (
        "INFO: 1epoch results: [train] loss=2.1, acc=0.41, [valid] loss=1.1, acc=0.51, time=3 s\n"
        "INFO: 2epoch results: [train] loss=2.2, acc=0.42, [valid] loss=1.2, acc=0.52, time=3 s\n",
        r"\[valid\].*acc=([0-9.]+)",
        [0.51, 0.52],
    ),
    "catboost": (
        "0:\tlearn: 0.6\ttest: 0.50\tbest: 0.50 (0)\ttotal: 57ms\tremaining: 57s\n"
        "1:\tlearn: 0.5\ttest: 0.51\tbest: 0.50 (0)\ttotal: 99ms\tremaining: 1s\n"
        "\nbestTest = 0.50\nbestIteration = 0\n",
        r"[tT]est\W+([0-9.]+)",
        [0.50, 0.51],
    ),
    "what wandb says of a run": (
        "epoch 1 val/acc: 0.1\nwandb: \nwandb: Run summary:\nwandb: val/acc 0.1\n",
        r"val/acc\W+([0-9.]+)",
        [0.1],
    ),
    "stable-baselines3": (
        "".join(
            f"{'-' * 34}\n| rollout/           |          |\n|    ep_rew_mean     | {r}     |\n"
            f"| time/              |          |\n|    total_timesteps | 2048     |\n{'-' * 34}\n"
            for r in ("-13.5", "9.25")
        ),
        r"ep_rew_mean\s*\|\s*([-0-9.e+]+)",
        [-13.5, 9.25],
    ),
    "skorch": (
        "  epoch    train_loss    valid_acc    valid_loss     dur\n"
        "-------  ------------  -----------  ------------  ------\n"
        "      1        \x1b[36m0.6100\x1b[0m       \x1b[32m0.5100\x1b[0m        0.5  0.01\n"
        "      2        \x1b[36m0.6000\x1b[0m       0.5000        \x1b[35m0.4\x1b[0m  0.01\n",
        r"^\s+\d+\s+[\d.]+\s+([\d.]+)",
        [0.51, 0.50],
    ),
    "torchtune": (
        "".join(
            f"\r1|{n}|Loss: {3 - n / 10:.4f}: {n * 33:3d}%|{'█' * n:<3}| {n}/3 [00:0{n}<00:09]"
            for n in (1, 2, 3)
        ),
        "Loss: ([0-9.]+)",
        [2.9, 2.8, 2.7],
    ),
    "fasttext": (
        "".join(
            f"\rProgress: {p:5.1f}% words/sec:  99 avg.loss:  {5 - p / 50:.6f} ETA: 0h"
            for p in (10, 50)
        )
        + "\n",
        r"avg\.loss:\s+([0-9.]+)",
        [4.8, 4.0],
    ),
    "averages of batches, then of all": (
        "Test: [0/9]\tTime 0.1 (0.1)\tAcc@1 90.0 (90.0)\n"
        "Test: [5/9]\tTime 0.1 (0.1)\tAcc@1 70.0 (80.0)\n"
        " * Acc@1 76.130 Acc@5 92.862\n",
        "Acc@1 ([0-9.]+)",
        [76.13],
    ),
    "a dictionary behind a bar": (
        "\r100%|████| 850/850 [1:41:01<00:00,  4.69s/it]{'eval_loss': 0.66, 'eval_mse': 0.81}\n"
        "Epoch 1: 100% 50/50 [00:05<00:00, 9.1it/s, v_num=0, mse=9]"
        "{'eval_mse': np.float64(0.7)}\n",
        "'eval_mse': (.*)",
        [0.81, 0.7],
    ),
    "keras 2": (
        "Epoch 64/99\n9/9 [=======>......] - ETA: 0s - loss: 0.3 - accuracy: 0.8\r"
        "9/9 [==============] - 1s 9us/step - loss: 0.2 - accuracy: 0.9 - val_accuracy: 0.94\n"
        "Epoch 64: val_accuracy did not improve from 0.95000\n"
        "Epoch 65/99\n8/9 [=====>.] - ETA: 0s - accuracy: 0.9Restoring the best epoch: 15.\n"
        "9/9 [==============] - 1s 9us/step - loss: 0.2 - accuracy: 0.9 - val_accuracy: 0.94\n",
        "val_accuracy: ([0-9.]+)",
        [0.94, 0.94],
    ),
    "what sums up": (
        "epoch 0 val_acc=0.5\nbest val_acc=0.9\n  ** Final: val_acc=0.9\n"
        "2024-05-01 12:00:00,123 INFO test val_acc=0.9\n[INFO] Testing: val_acc=0.9\n"
        "test: 3% val_acc=0.9\r",
        ACC,
        [0.5],
    ),
    "what sums up, by its name": (
        "epoch 0 val_acc=0.5\nbest val_acc=0.9\n",
        "best val_acc=(.*)",
        [0.9],
    ),
    "no summary": ("bestial val_acc=0.5\nepoch 1 (best) val_acc=0.6\n", ACC, [0.5, 0.6]),
    "a longer name on the line": (
        "val_loss=0.4 loss=0.5\nval_loss=0.3 loss=0.4\n",
        "loss=([0-9.]+)",
        [0.5, 0.4],
    ),
    "a longer name, greedily": ("a loss=0.5 b val_loss=0.4\n", ".*loss=([0-9.]+)", [0.5]),
    "a longer name after the name": (
        "loss=0.5\nval_loss=0.4\nloss=0.3\n",
        "loss=([0-9.]+)",
        [0.5, 0.3],
    ),
    "signs that the group does not name": (
        "loss=1.5\nloss=0.3\nloss=-0.25\nval_loss=-9.5\nloss=−.5\nloss=-1e-3\n",
        "loss=([0-9.]+)",
        [1.5, 0.3, -0.25, -0.5, -0.001],
    ),
    "signs before what the group ends": (
        "acc 0.5 of x\nacc -0.5 of x\nacc -7 of x\nacc -0.1 of y\n",
        r"acc (\d\.\d+) of x",
        [0.5, -0.5, -7.0],
    ),
    "a sign that the pattern names": ("nll=-0.5\nnll=-0.75\n", "nll=-([0-9.]+)", [0.5, 0.75]),
    "a longer name alone": ("val_loss=0.4\nval_loss=0.3\n", "loss=([0-9.]+)", [0.4, 0.3]),
    "latin-1": (each("Époque {e}: précision val_acc={v}\n").encode("latin-1"), ACC, THREE),
    "utf-16": (each("epoch {e} val_acc={v}\r\n").encode("utf-16"), ACC, THREE),
    "spaces that do not break": (
        each("val_acc\u00a0=\u202f{v}\n"),
        r"val_acc\s*=\s*([0-9.]+)",
        THREE,
    ),
    "a long line": (
        "." * 3_000_000 + each("\nepoch {e} val_acc={v}") + "x" * 20_000 + " val_acc=0.9\n",
        ACC,
        THREE,
    ),
    "the end of a long line": ("." * 3_000_000 + " val_acc=0.5\n", ACC, [0.5]),
}


def read(
    folder: AttemptFolder, data: bytes, pattern: str, cuts: list[int], rank: bool = False
) -> dict[int, float]:
    """Return the values by step, read while the output is written, by one reader after another."""
    objective = Objective("m", "maximize", pattern=pattern)
    more = {"read": lambda line: of_first(line, "torchrun")} if rank else {}
    folder.log.unlink(missing_ok=True)
    journal = Journal(folder, [objective], **more)  # type: ignore[arg-type]
    found: dict[int, float] = {}
    begin = 0
    with folder.log.open("ab", buffering=0) as log:
        for number, end in enumerate([*cuts, len(data)]):
            log.write(data[begin:end])
            begin = end
            found |= {report.step: report.metrics["m"] for report in journal.read()}
            if number % 3 == 2:
                position = journal.position()
                journal.close()
                journal = Journal(folder, [objective], position=position, **more)  # type: ignore[arg-type]
    found |= {report.step: report.metrics["m"] for report in journal.rest()}
    journal.close()
    return found


@pytest.mark.parametrize("name", PRINTED)
def test_what_trainings_print(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value is one step, whenever it is read, and by however many readers in turn."""
    monkeypatch.setattr(tail, "QUIET_S", 0.0)
    printed, pattern, values = PRINTED[name]
    data = printed if isinstance(printed, bytes) else printed.encode()
    folder, chance = AttemptFolder(tmp_path), random.Random(name)
    expected = repr(dict(enumerate(values)))
    cuts: list[list[int]] = [[]]
    if len(data) < 10_000:
        cuts += [sorted(chance.sample(range(len(data)), min(40, len(data)))) for _ in range(2)]
    for cut in cuts:
        found = read(folder, data, pattern, cut, rank="torchrun" in name)
        assert repr(dict(sorted(found.items()))) == expected, cut


@pytest.mark.parametrize(
    ("pattern", "printed", "said"),
    [
        (r"acc: (0\.\d+)", "acc: 0.9\nacc: 1.0\n", "1 line with a number"),
        (r"acc: (\d+\.\d+)", "acc: 0.9\nacc: 1\nacc: 2\n", "2 lines with a number"),
        (r"acc: ([0-9.]+)", "acc: 0.9\nacc: -0.5\n", "'-0.5' was printed where"),
        (r"acc: ([0-9.]+) x", "acc: 0.9 x\nacc: 0.7 y\n", ""),
        (r"acc: (.*)", "acc: 0.9\nloss: 0.7\n", ""),
        (r"(?:acc|loss): ([\d.]+)", "acc: 0.9\ntop: 0.7\n", ""),
    ],
)
def test_numbers_that_a_group_does_not_take_are_said(pattern: str, printed: str, said: str) -> None:
    output = Output([Objective("acc", "maximize", pattern=pattern)])
    for line in printed.splitlines():
        output.take(line, "\n")
    notes = " ".join(output.notes())
    assert said in notes and bool(notes) == bool(said)


def test_a_bar_that_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it shows is read before its line ends; once, also where the line goes on."""
    monkeypatch.setattr(tail, "QUIET_S", 0.0)
    folder = AttemptFolder(tmp_path)
    journal = Journal(folder, [Objective("m", "maximize", pattern=ACC)])
    with folder.log.open("a", buffering=1) as log:

        def write(text: str) -> list[tuple[int, float]]:
            log.write(text)
            log.flush()
            return [(report.step, report.metrics["m"]) for report in journal.read()]

        assert write(bar("", 0, 3)) == []
        assert write(bar("", 0, 3, post(0.58))) == [(0, 0.58)]
        assert write("") == []
        assert write(bar("", 1, 3, post(0.58))) == []
        assert write(bar("", 1, 3, post(0.66))) == [(1, 0.66)]
        assert write(post(0.74)) == []  # may be a part of it
        assert write("12\n") == [(2, 0.740012)]
        assert write("epoch 3 val_acc=0.8 (") == [(3, 0.8)]
        assert write("best)\n") == []
    assert list(journal.rest()) == []


def test_a_line_drawn_by_hand_that_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with its number: the first is told at once, and again where it was half of one."""
    monkeypatch.setattr(tail, "QUIET_S", 0.0)
    folder = AttemptFolder(tmp_path)
    journal = Journal(folder, [Objective("m", "maximize", pattern=ACC)])
    told = []
    for text in ("\rval_acc=0.5", "8", "\rval_acc=0.6", "6", "\r", "\n"):
        with folder.log.open("a") as log:
            log.write(text)
        told.append([(report.step, report.metrics["m"]) for report in journal.read()])
    assert told == [[(0, 0.5)], [(0, 0.58)], [], [(1, 0.66)], [], []]


def test_a_line_that_may_go_on_waits(tmp_path: Path) -> None:
    """As long as it grows, nobody looks at what is there of it."""
    folder = AttemptFolder(tmp_path)
    journal = Journal(folder, [Objective("m", "maximize", pattern=ACC)])
    folder.log.write_text(bar("", 0, 3, post(0.58)))
    assert journal.read() == []
    assert [report.metrics for report in journal.rest()] == [{"m": 0.58}]


def notes(text: str, pattern: str, metric: str = "m") -> list[str]:
    output = Output([Objective(metric, "minimize", pattern=pattern)])
    for line in text.splitlines():
        output.take(line, NEWLINE)
    return output.notes()


@pytest.mark.parametrize(
    ("text", "pattern", "note"),
    [
        ("val_acc=0.5", ACC, None),
        ("val_acc=1,000.6", ACC, "m: its pattern takes '1' of '1,000.6'; the number is read whole"),
        ("val_acc=58.00%", ACC, None),
        ("val_loss=0.4", "loss=([0-9.]+)", "matches within a longer name, 'val_loss', and reads"),
        ("[0]\ttrain-rmse:0.5", "rmse:([0-9.]+)", "a longer name, 'train-rmse', and reads that"),
        (
            "loss=1\nval_loss=0.4",
            "loss=([0-9.]+)",
            r"in 'val_loss', which is skipped. Put \b before",
        ),
        ("val_loss=1\nloss=0.4", "loss=([0-9.]+)", "since 'loss' came; 1 step before are of it"),
        (
            "train loss 2.0, val loss 2.1",
            "loss ([0-9.]+)",
            "('train loss' and 'val loss'), and the",
        ),
        ("train loss 2.0\nval loss 2.1", "loss ([0-9.]+)", "lines of train and val, and each is a"),
        (
            "[train] loss=2.1, acc=0.4, [valid] loss=1.1, acc=0.5",
            "acc=([0-9.]+)",
            "more than once in a line ('train acc' and 'valid acc'), and the first",
        ),
        (
            "[Epoch 0] Training: accuracy=0.8\n[Epoch 0] Validation: accuracy=0.7",
            "accuracy=([0-9.]+)",
            "matches lines of train and val, and each is a step",
        ),
        ("train.py:12 loss=0.5 at data/val\ntrain.py:12 loss=0.4", "loss=([0-9.]+)", None),
        ("loss=nan", "loss=([0-9.]+)", "'nan' was printed where its pattern has a number, and is"),
        ("loss=nan", "loss=([0-9.]+|nan)", None),
        (
            "epoch 5 acc 0.98",
            ACC,
            "near it came 'epoch 5 acc 0.98'; 'acc ([-+0-9.eE]+)' would find",
        ),
        ("{'eval_loss': 0.1, 'val_acc': 0.9}", ACC, "val_acc': ([-+0-9.eE]+)"),
        (
            "Test set: Accuracy: 98/100 (98%)",
            r"\((\d+)%",
            "that begin with 'test' match and are skip",
        ),
        (
            "epoch 0 val_acc=0.5 epoch 1 val_acc=0.6",
            ACC,
            "more than once in a line ('val_acc=0.5' and 'val_acc=0.6'), and the first counts",
        ),
        ("val_acc=0.5 (best val_acc=0.5)", "best val_acc=([0-9.]+)", None),
        ("acc: high", "acc: (.*)", "of 1 line its group takes what is no number, such as 'high'"),
        ("nothing of it 5", ACC, None),
        (
            "\n".join(
                f"epoch {e} val_acc=0.{e}{r} in {r + 3}.2s" for e in range(3) for r in (1, 2)
            ),
            ACC,
            "lines came 2 times, such as 'epoch 0 … in …s', and each is a step.",
        ),
        (
            "\n".join(
                f"[rank {r}] {{'val_acc': 0.5, 'epoch': {e}.0}}" for e in "012" for r in "0123"
            ),
            "val_acc': ([0-9.]+)",
            "lines came 4 times",
        ),
        ("\n".join(f"epoch {e} val_acc=0.5" for e in "01230123"), ACC, "lines came 2 times"),
        ("\n".join(f"epoch {e} val_acc=0.5" for e in "0010232"), ACC, None),
        ("\n".join(f"epoch {e} val_acc=0.5" for e in range(3) for _ in range(50)), ACC, None),
        ("\n".join(f"epoch {e} {b}/9 val_acc=0.5" for e in "012" for b in range(2)), ACC, None),
    ],
)
def test_what_is_said_of_the_lines(text: str, pattern: str, note: str | None) -> None:
    found = notes(
        text, pattern, "val_acc" if "acc" in pattern and "m:" not in (note or "") else "m"
    )
    assert len(found) == (note is not None), found
    assert note is None or note in found[0]


def test_what_would_be_proposed_finds_it() -> None:
    """A pattern that a note shows reads the line that it shows."""
    for line in (
        "epoch 5 acc 0.98",
        "{'eval_acc': '0.98'}",
        "Accuracy (val): 0.98",
        "acc .... 0.98",
        "{'acc': np.float32(0.98)}",
        "acc=Array(0.98, dtype=float32)",
        "acc@5: 0.98",
        "fold3_acc -> 0.98",
        "acc\t0.98\t1e-3",
    ):
        output = Output([Objective("acc", "maximize", pattern="nothing=(.*)")])
        output.take(line, NEWLINE)
        pattern = output._metrics[0].near._propose(line)
        again = Output([Objective("acc", "maximize", pattern=pattern)])
        assert again.take(line, NEWLINE) == [("acc", 0, 0.98)], pattern


@pytest.mark.parametrize(
    "lines",
    [
        ("epoch     train_loss  acc   time", " 0         0.4444      0.98      00:01  "),
        ("| epoch | acc |", "|---|---|", "| 0 | 0.98 |"),
        ("epoch,acc,lr", "0,0.98,1e-3"),
        ("epoch\tacc\tlr", "0\t0.98\t0.1"),
        ("acc;lr", "0.98;0.1"),
    ],
)
def test_a_column_is_proposed(lines: tuple[str, ...]) -> None:
    """Where a metric heads a column, the pattern that a note shows reads the row."""
    output = Output([Objective("acc", "maximize", pattern="nothing=(.*)")])
    for line in lines:
        output.take(line, NEWLINE)
    (note,) = output._metrics[0].notes()
    assert "its name heads a column" in note
    again = Output([Objective("acc", "maximize", pattern=output._metrics[0].near._table.pattern)])
    assert [found for line in lines for found in again.take(line, NEWLINE)] == [("acc", 0, 0.98)]


@pytest.mark.parametrize("lines", [("acc 0.5", "loss 0.4"), ("see acc", "0.1"), ("acc lr", "a b")])
def test_no_column_is_proposed(lines: tuple[str, ...]) -> None:
    output = Output([Objective("acc", "maximize", pattern="nothing=(.*)")])
    for line in lines:
        output.take(line, NEWLINE)
    assert not output._metrics[0].near._table.pattern


def test_lines_that_came_twice_are_told_by_who_reads_on() -> None:
    """A reader that takes over in their middle knows of those before."""
    lines = [f"epoch {epoch} val_acc=0.{rank}" for epoch in range(3) for rank in (1, 2)]
    output = Output([Objective("m", "maximize", pattern=ACC)])
    for line in lines:
        output.take(line, NEWLINE)
        state = json.loads(json.dumps(output.state()))
        output = Output([Objective("m", "maximize", pattern=ACC)])
        output.restore(state)
    assert "lines came 2 times" in output.notes()[0]


def test_what_is_known_is_small(tmp_path: Path) -> None:
    """It is stored with each batch of reports."""
    output = Output([Objective("m", "maximize", pattern=ACC)])
    for epoch in range(300):
        for piece in batches(
            epoch, "", post(epoch / 300), f"fold {epoch} {chr(97 + epoch % 26)}"
        ).split("\r"):
            output.take(piece, RETURN)
    state = json.dumps(output.state())
    assert len(state) < 4000
    again = Output([Objective("m", "maximize", pattern=ACC)])
    again.restore(json.loads(state))
    assert again.take("val_acc=0.5", NEWLINE) == [("m", 300, 0.5)]


def test_a_position_of_an_older_version(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    folder.log.write_text("val_acc=0.1\nval_acc=0.2\n")
    old = json.dumps({"log": [folder.log.stat().st_ino, 12], "steps": {"m": 1}, "metrics": [0, 0]})
    journal = Journal(folder, [Objective("m", "maximize", pattern=ACC)], position=old)
    assert [(r.step, r.metrics["m"]) for r in journal.rest()] == [(1, 0.2)]


def test_a_pattern_that_begins_with_anything_costs_no_square(tmp_path: Path) -> None:
    """A line of a megabyte, and one that is drawn 5,000 times, are read at once."""
    folder = AttemptFolder(tmp_path)
    drawn = "".join(f"\r{n}/5000 loss={n % 7}" for n in range(5_000))
    folder.log.write_text("x" * (LONGEST_LINE_BYTES - 9) + "\n" + drawn)
    journal = Journal(folder, [Objective("m", "maximize", pattern=r".*loss=(\d+).*x")])
    assert list(journal.rest()) == []


def test_source_in_a_traceback_is_no_value() -> None:
    """Python quotes the lines that failed; what they hold was not printed."""
    output = Output([Objective("val/loss", pattern=r"val/loss['\"]?\s*[:=]\s*([0-9.]+)")])
    lines = [
        "val/loss: 0.5",
        "Traceback (most recent call last):",
        '  File "train.py", line 5, in <module>',
        '    wandb.log({"val/loss": 1.0})',
        "ValueError: no run",
        "val/loss: 0.25",
    ]
    found = [value for line in lines for value in output.take(line, NEWLINE)]
    assert found == [("val/loss", 0, 0.5), ("val/loss", 1, 0.25)]
