"""What a study varies and its command never gets is said; nothing is refused for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.control.check import WARNING, quick, reach
from sweep.core.paths import Runs
from sweep.core.space import Parameter, Space
from sweep.core.study import Objective, Study

SPACE = Space(
    (
        Parameter("lr", "float", low=0.0, high=1.0),
        Parameter("momentum", "float", low=0.0, high=1.0, when={"lr": (0.5,)}),
    )
)


def make(folder: Path, *command: str, space: Space = SPACE, **fixed: object) -> Study:
    return Study(
        "s", command, (Objective("loss"),), space, trials=4, fixed=fixed, workdir=str(folder)
    )


# command, what is said of: parameters, the seed
CASES = [
    (("python", "t.py", "{params}", "{seed}"), ()),
    (("python", "t.py", "{overrides}", "seed={seed}"), ()),
    (("python", "t.py", "{config}"), ()),
    (("python", "t.py", "--config={config}"), ()),
    (("python", "t.py", "{lr}", "--momentum={momentum}", "--seed", "{seed}"), ()),
    (("python", "t.py", "{params}"), ("seed",)),
    (("python", "t.py", "{seed}"), ("parameters",)),
    (("python", "t.py", "{lr}", "{seed}"), ("parameters",)),
    (("python", "t.py"), ("parameters", "seed")),
    (("python", "t.py", "{{lr}}", "{{seed}}"), ("parameters", "seed")),
]


@pytest.mark.parametrize(("command", "expected"), CASES)
def test_placeholders(tmp_path: Path, command: tuple[str, ...], expected: tuple[str, ...]) -> None:
    """Each parameter by its own name, or all together; the seed by its own or in the config."""
    (tmp_path / "t.py").write_text("import sys\n")
    lines = reach.look(make(tmp_path, *command))
    assert tuple(line.name for line in lines) == expected
    assert all(line.state == WARNING and line.advice for line in lines)


def test_the_text_names_what_is_lost(tmp_path: Path) -> None:
    """Of several parameters those that are missing, and fixed values as well."""
    lines = reach.look(make(tmp_path, "python", "t.py", "{lr}", "{seed}", epochs=3))
    assert [line.text for line in lines] == [
        "momentum, epochs never reach the command, which has neither {momentum}, {epochs} nor "
        "{params}, {overrides} or {config}"
    ]
    assert lines[0].advice.startswith("Pass them, such as --momentum {momentum}, or read ")
    one = reach.look(make(tmp_path, "python", "t.py", "{lr}", "{momentum}", "{seed}", epochs=3))
    assert one[0].text.startswith("epochs never reaches the command")


def test_a_script_that_reads_the_variables(tmp_path: Path) -> None:
    """It gets them without a placeholder."""
    script = tmp_path / "t.py"
    script.write_text("import os, yaml\nc = yaml.safe_load(open(os.environ['SWEEP_CONFIG']))\n")
    assert reach.look(make(tmp_path, "python", "t.py")) == []
    script.write_text("from sweep.report import Reporter\nr = Reporter()\nseed(r.seed)\n")
    assert [line.name for line in reach.look(make(tmp_path, "python", "t.py"))] == ["parameters"]
    script.write_text("import os\nseed(os.environ['SWEEP_SEED'])\n")
    assert reach.look(make(tmp_path, "python", "t.py", "{params}")) == []


def test_nothing_varies(tmp_path: Path) -> None:
    """Without a space only the seed can be lost."""
    assert reach.look(make(tmp_path, "true", "{seed}", space=Space(()))) == []
    assert [line.name for line in reach.look(make(tmp_path, "true", space=Space(())))] == ["seed"]


def test_odd_words_of_a_command(tmp_path: Path) -> None:
    """Folders, braces, NULs and files that cannot be read are looked over."""
    command = ("python", ".", "a\0b", "{", "x" * 5000, "{lr}", "{momentum}", "{seed}")
    assert reach.look(make(tmp_path, *command)) == []


def test_launch_says_it(tmp_path: Path) -> None:
    """The look that every launch takes has these lines, as warnings."""
    lines = quick.refuse(quick.look(make(tmp_path, "true"), Runs(tmp_path), None, {}))
    assert {"parameters", "seed"} <= {line.name for line in lines}
