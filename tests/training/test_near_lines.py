"""What has a metric read that was printed and never reported."""

from __future__ import annotations

import re

import pytest

from sweep.training.near_lines import reading_advice

PRINTED = [
    ("loss", ['{"step": 5, "loss": 0.25}'], "0.25"),
    ("val_loss", ["epoch 3 train_loss=0.9 val_loss=0.5"], "0.5"),
    ("accuracy", ["Epoch 1/3", "Accuracy : 97.50%"], "97.50"),
    ("eval/f1", ["{'eval/f1': np.float64(0.625), 'epoch': 2}"], "0.625"),
    ("loss", ["it's loss: '-1.5e-3'"], "-1.5e-3"),
    ("valid_loss", ["epoch  train_loss  valid_loss  time", "0  0.9  0.75  00:03"], "0.75"),
]


@pytest.mark.parametrize(("metric", "lines", "number"), PRINTED)
def test_a_printed_metric_is_read(metric: str, lines: list[str], number: str) -> None:
    """The pattern, as the study file would have it, finds the number in the line that names it."""
    said = reading_advice(metric, lines)
    quoted = re.fullmatch(r".+ names (.+): objective\.from: \{stdout: '(.*)'\} reads it", said)
    assert quoted is not None and quoted[1] == metric, said
    found = re.search(quoted[2].replace("''", "'"), lines[-1], re.IGNORECASE)
    assert found is not None and found[1] == number


@pytest.mark.parametrize("lines", [[], ["done"], ["train_loss=0.5"], ["val_loss is best"]])
def test_what_is_not_printed_is_not_advised(lines: list[str]) -> None:
    """Another metric's lines are none, nor is a line without a number."""
    assert reading_advice("val_loss", lines) == ""
