"""Malformed study files: each with exactly the messages that it must give, and nothing made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweep.core.errors import EXIT_INPUT, InputError, StudyFileError
from sweep.studyfile import load, loads

TABLE = Path(__file__).with_name("study_file_errors.txt")
GOOD = {
    "name": "name: s",
    "command": "command: train {config}",
    "objective": "objective: {metric: acc, direction: maximize}",
    "space": "space: {x: {type: float, low: 0, high: 1}}",
    "trials": "trials: 4",
}
# Cases that are about a key's absence.
ABSENT = {"space missing": {"space"}, "grid too large": {"trials"}}


def read_cases() -> list[tuple[str, str, list[str]]]:
    cases = []
    for block in TABLE.read_text(encoding="utf-8").split("\n=== ")[1:]:
        title, _, rest = block.partition("\n")
        # The last "---": a case may hold several documents.
        body, _, messages = f"\n{rest}".rpartition("\n---\n")
        body = body.removeprefix("\n")
        text = f"{body}\n" if body else ""
        if not title.startswith("whole: "):
            given = set(re.findall(r"^(\w+):", text, re.MULTILINE)) | ABSENT.get(title, set())
            text += "".join(f"{line}\n" for key, line in GOOD.items() if key not in given)
        cases.append((title, text, messages.strip().splitlines()))
    return cases


CASES = read_cases()


def test_there_are_enough_cases() -> None:
    """The table holds well over a hundred files, each with its own title."""
    titles = [title for title, _, _ in CASES]
    assert len(titles) >= 200
    assert sorted(set(titles)) == sorted(titles)


@pytest.mark.parametrize(
    ("text", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_message(
    text: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every problem is named at once, with its line, and no file is made."""
    monkeypatch.chdir(tmp_path)
    path = Path("s.yaml")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StudyFileError) as caught:
        load(path)
    assert [str(problem) for problem in caught.value.problems] == expected
    assert str(caught.value).splitlines() == expected
    assert caught.value.exit_code == EXIT_INPUT
    assert list(tmp_path.iterdir()) == [tmp_path / "s.yaml"]


def test_the_base_is_good() -> None:
    """What the cases change is a good study file before."""
    assert loads("\n".join(GOOD.values()), "s.yaml").trials == 4


BYTES = [
    (b"", "s.yaml:1: is empty. Write one with `sweep init`."),
    (
        b"name: s\ncommand: \xff\n",
        "s.yaml:2: must be UTF-8 text (got the byte 0xff). Save the file as UTF-8.",
    ),
    (
        "name: größe\n".encode("latin-1"),
        "s.yaml:1: must be UTF-8 text (got the byte 0xf6). Save the file as UTF-8.",
    ),
    (
        "name: s\n".encode("utf-16"),
        "s.yaml:1: must be UTF-8 text (got the byte 0xff). Save the file as UTF-8.",
    ),
    (
        b"name: s\ncommand: a\0b\n",
        "s.yaml:2: must not contain control characters (got NUL). Remove it.",
    ),
    (
        b"#" * 1_000_001,
        "s.yaml: must not be larger than 1,000,000 bytes (got 1,000,001). Is this the right file?",
    ),
    (
        b"[" * 900_000,
        "s.yaml:1: must not be nested deeper than 40 levels. A study file needs five.",
    ),
    (
        b"- " * 400_000,
        "s.yaml:1: must not be nested deeper than 40 levels. A study file needs five.",
    ),
]


@pytest.mark.parametrize(("data", "expected"), BYTES)
def test_bytes(data: bytes, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no text, or no YAML by far, is one problem with its line."""
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_bytes(data)
    with pytest.raises(StudyFileError) as caught:
        load(Path("s.yaml"))
    assert str(caught.value) == expected


def test_alias_bomb_is_refused() -> None:
    """Aliases of aliases are refused before they fill the memory."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for i in range(1, 12):
        lines.append(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]")
    with pytest.raises(StudyFileError) as caught:
        loads("\n".join(lines), "s.yaml")
    [problem] = caught.value.problems
    assert problem.line == 6
    assert problem.rule == "must not hold more than 100,000 values"


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there is the user's input, and named."""
    with pytest.raises(InputError) as caught:
        load(tmp_path / "none.yaml")
    assert caught.value.message == f"There is no study file {tmp_path / 'none.yaml'}."
    assert caught.value.hint == "Check the path, or write one with `sweep init`."


def test_folder_instead_of_file(tmp_path: Path) -> None:
    """A folder is refused, and so is anything that would never end."""
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(InputError) as caught:
            load(path)
        assert caught.value.message == f"{path} is not a file."


OVERRIDES = [
    (
        ["trials=many"],
        '--set trials=many: trials: must be a whole number from 1 to 100000 (got "many"). '
        "For example trials: 30.",
    ),
    (["trails=5"], "--set trails=5: trails: is not a key of a study file. Did you mean trials?"),
    (
        ["space.x.hihg=2"],
        "--set space.x.hihg=2: space.x.hihg: is not a key of a parameter of type float. "
        "Did you mean high?",
    ),
    (
        ["name.first=a"],
        '--set name.first=a: name: is not a mapping, so that nothing can be set in it (got "s"). '
        "Set the whole: --set 'name={…}'.",
    ),
    (
        ["fixed={a: [1"],
        "--set fixed={a: [1: is not YAML: the bracket from line 1 is not closed, or a comma is "
        "missing. Separate entries by commas, and close the bracket.",
    ),
    (["seed="], "--set seed=: seed: has no value. Write one, or remove the key."),
    (
        ["space.x.low=5"],
        "--set space.x.low=5: space.x.low: must not be above high, 1 (got 5). Swap the two.",
    ),
]


@pytest.mark.parametrize(("overrides", "expected"), OVERRIDES)
def test_override_message(overrides: list[str], expected: str) -> None:
    """A problem that comes from --set points there and not into the file."""
    with pytest.raises(StudyFileError) as caught:
        loads("\n".join(GOOD.values()), "s.yaml", overrides)
    assert str(caught.value) == expected


@pytest.mark.parametrize("override", ["trials", "=5", "a..b=1", ".=1"])
def test_override_without_a_key(override: str) -> None:
    """An override is key=value."""
    with pytest.raises(InputError) as caught:
        loads("\n".join(GOOD.values()), "s.yaml", [override])
    assert caught.value.message == f"--set needs key=value (got {override!r})."
