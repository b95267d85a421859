"""The trainer's parameters: files, flags, kinds, ranges and messages."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from trainer import config
from trainer.config import InputError, Options


def parse(*argv: str, **environ: str) -> Options:
    return config.parse(list(argv), environ)


def test_no_flags_give_the_defaults() -> None:
    """An empty command line is a complete run."""
    assert parse() == Options()


def test_mnist_has_a_recipe_that_whatever_is_given_beats(tmp_path: Path) -> None:
    """Its network's alone; other data sets and networks have the general defaults."""
    recipe = Options(data="mnist", layers=3, width=32, dropout=0.2, augment="crop", epochs=12)
    assert parse("--data", "mnist") == recipe
    assert parse("--data", "mnist", "--model", "cnn", "--epochs", "2") == dataclasses.replace(
        recipe, model="cnn", epochs=2
    )
    assert parse("--data", "mnist", "--model", "mlp") == Options(data="mnist", model="mlp")
    file = tmp_path / "config.yaml"
    file.write_text("data: mnist\nlayers: 2\n")
    assert parse("--config", str(file)) == dataclasses.replace(recipe, layers=2)


def test_flags_accept_dashes_underscores_and_equals_signs() -> None:
    """The forms that people and sweep's {params} write mean the same."""
    expected = Options(batch_size=32, lr=1e-5)
    assert parse("--batch-size", "32", "--lr", "1e-5") == expected
    assert parse("--batch_size=32", "--lr=0.00001") == expected


def test_flags_beat_the_file_and_the_file_beats_the_environment(tmp_path: Path) -> None:
    """Precedence: flag, file, SWEEP_SEED, default."""
    file = tmp_path / "config.yaml"
    file.write_text("lr: 0.5\nseed: 3\n")
    assert parse("--config", str(file), "--lr", "0.25", SWEEP_SEED="9") == Options(lr=0.25, seed=3)
    assert parse("--lr", "0.25", SWEEP_SEED="9") == Options(lr=0.25, seed=9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'lr: 1e-05\nbatch_size: 64\noptimizer: "adamw"\n',
            Options(lr=1e-5, batch_size=64, optimizer="adamw"),
        ),
        ("batch-size: 64.0\nnesterov: false\n", Options(batch_size=64, nesterov=False)),
        (
            "# a comment\n---\noptimizer: adamw  # the other\n\nlr: null\n",
            Options(optimizer="adamw"),
        ),
        ("data_dir: '/it''s here'\n", Options(data_dir="/it's here")),
        ('data_dir: "/a \\"b\\" \\u00e9 # c"  # d\n', Options(data_dir='/a "b" é # c')),
        ('"lr": 1\n', Options(lr=1.0)),
        ("\ufefflr: 2.5E-1\r\nepochs: 3\r\n", Options(lr=0.25, epochs=3)),
        (
            '{"lr": 0.1, "batch_size": 64, "nesterov": true, "dropout": null}',
            Options(lr=0.1, batch_size=64),
        ),
        ("", Options()),
    ],
)
def test_config_files_are_read(tmp_path: Path, text: str, expected: Options) -> None:
    """What sweep and people write in a flat file is understood, each value by its kind."""
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8", newline="")
    assert parse("--config", str(file)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lrr: 1\n", "F: lrr: is no parameter of the trainer. Did you mean lr?"),
        (
            "bach_size: 1\n",
            "F: bach_size: is no parameter of the trainer. Did you mean batch_size?",
        ),
        ("lr: 0\n", "F: lr: must be > 0 (got 0)."),
        ("lr: .nan\n", "F: lr: must be a number (got .nan)."),
        ("lr: inf\n", "F: lr: must be > 0 (got inf)."),
        ("lr: nan\n", "F: lr: must be > 0 (got nan)."),
        ("weight_decay: inf\n", "F: weight_decay: must be >= 0 (got inf)."),
        ("batch_size: 6.5\n", "F: batch_size: must be a whole number (got 6.5)."),
        ("dropout: 1.0\n", "F: dropout: must be >= 0 and < 1 (got 1.0)."),
        ("nesterov: maybe\n", "F: nesterov: must be true or false (got maybe)."),
        (
            "optimizer: adam\n",
            "F: optimizer: must be one of sgd, adamw (got adam). Did you mean adamw.",
        ),
        ('{"lr": true}', "F: lr: must be a number (got True)."),
        ('{"lr": [1]}', "F: lr: must be a number (got [1])."),
        ('{"lr": ', "F: not a JSON object: Expecting value: line 1 column 8 (char 7)."),
        ("lr: 1\nlr: 2\n", "F:2: lr: is given twice. Remove one."),
        (
            "model:\n  width: 3\n",
            "F:2: not a flat `name: value` line (got 'width: 3'). "
            "The trainer's config has no nesting and no lists.",
        ),
        ("lr: [1, 2]\n", "F:1: lr: must be a single plain value (got '[1, 2]')."),
        ("lr: &a 1\n", "F:1: lr: must be a single plain value (got '&a 1')."),
        ("lr: 'a' b\n", "F:1: lr: text after the closing quote (got 'b')."),
    ],
)
def test_bad_config_files_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    """The message names the file, the parameter, the rule and what was given."""
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        parse("--config", str(file))
    assert str(caught.value).replace(str(file), "F") == expected


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--epochs", "0"], "--epochs: must be >= 1 and <= 9999 (got 0)."),
        (["--lr=abc"], "--lr: must be a number (got abc)."),
        (
            ["--epoch", "3"],
            "--epoch: is no flag of the trainer. Did you mean --epochs?\n"
            "3: the trainer takes flags only. See --help.",
        ),
        (
            ["--data", "minst"],
            "--data: must be one of digits, mnist, fashion-mnist, cifar10, "
            "shards, images, parquet, synthetic (got minst). Did you mean mnist.",
        ),
        (
            ["--lr=-1", "--threads=-2"],
            "--lr: must be > 0 (got -1).\n--threads: must be >= 0 and <= 4096 (got -2).",
        ),
        (
            ["--config", "/nowhere/c.yaml"],
            "/nowhere/c.yaml: cannot read the config file "
            "(No such file or directory). Check the path given to --config.",
        ),
    ],
)
def test_bad_flags_are_refused_all_at_once(argv: list[str], expected: str) -> None:
    """One message holds everything that is wrong."""
    with pytest.raises(InputError) as caught:
        parse(*argv)
    assert str(caught.value) == expected


def test_differences_name_what_changes_the_run_and_pass_over_how_it_is_carried_out() -> None:
    """A run may move to another device or folder, not to another learning rate."""
    record = {"lr": 0.1, "threads": 1, "epochs": 3}
    assert config.differences(Options(lr=0.1, threads=4, epochs=3, output="x"), record) == []
    assert config.differences(Options(lr=0.2, epochs=3), record) == [
        "lr: 0.1 in the checkpoint, 0.2 now"
    ]
    assert config.differences(Options(lr=0.1, epochs=9), record) == [
        "epochs: 3 in the checkpoint, 9 now"
    ]
    longer = Options(lr=0.1, epochs=9, schedule="constant")
    assert config.differences(longer, {**record, "schedule": "constant"}) == []


def test_help_needs_no_torch_and_names_every_parameter() -> None:
    """--help answers without torch's import, and mistakes do too."""
    code = (
        "import sys; from trainer import train\n"
        "try: train.main(['--help'])\n"
        "except SystemExit as e: assert e.code == 0\n"
        "assert train.main(['--lr', 'x']) == 2\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = ["--" + name.replace("_", "-") for name in Options.__dataclass_fields__]
    assert [name for name in names if name not in done.stdout] == []
    assert done.stderr == "trainer: --lr: must be a number (got x).\n"
