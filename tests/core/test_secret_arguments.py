"""Where a study has secrets that sweep does not take out, it says so."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from sweep.core.masking import forget_secrets, hide_arguments, mask
from sweep.core.placeholders import parse
from sweep.core.secret_arguments import notes, plain_places, take_out, values_of
from sweep.core.space import Space
from sweep.core.study import Environment, Slurm, Study


def make(command: Sequence[str] = ("x",), **more: object) -> Study:
    return Study(name="s", command=tuple(command), objectives=(), space=Space(()), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "places"),
    [
        ({"fixed": {"api_key": "abc", "wandb.token": "x"}}, ["fixed.api_key", "fixed.wandb.token"]),
        ({"fixed": {"max_tokens": 5, "keys": "a", "token": None, "epochs": 3}}, []),
        (
            {"slurm": Slurm(setup=("module load x", "export HF_TOKEN=abc A=1"))},
            ["slurm.setup: HF_TOKEN"],
        ),
        (
            {"environment": Environment(setup=("WANDB_API_KEY='abc' x",))},
            ["environment.setup: WANDB_API_KEY"],
        ),
        ({"slurm": Slurm(setup=('export HF_TOKEN="$TOKEN" B_KEY=$(cat f) C_KEY=',))}, []),
    ],
)
def test_secrets_beside_the_command_are_named(more: dict[str, object], places: list[str]) -> None:
    """By their names; what a variable or a file gives is no secret of the study file's."""
    study = make(**more)
    assert plain_places(study) == places
    said = notes(study)
    assert [all(place in line for place in places) for line in said] == [True] * bool(places)
    assert "abc" not in "".join(said)


WORD = "Zq8cAnArY77"
IN_ARGUMENTS = [
    ("--api-key", WORD),
    (f"--apiKey={WORD}",),
    (f"--authToken={WORD}",),
    ("--token", f"{WORD}-{{seed}}"),
    (f"--token={WORD}/{{seed}}",),
    (f"logger.api_key={WORD}",),
    ("--db-pass", WORD),
    ("env", f"MYSQL_PWD={WORD}", "python"),
    (f"postgresql://u:a@{WORD}/b@h/d",),
    (f"--db=postgresql://u:%40{WORD}%2f@h/d",),
    ("--url", f"https://{WORD}@h/x"),
    (f"https://h/x?page=1&token={WORD}&b=2",),
    (f"--url=https://h/x?api_key={WORD}",),
    (f"redis://:{WORD}@h:6379/0",),
    (f"jdbc:postgresql://h/d?user=u&password={WORD}",),
    (f"host=h password={WORD} user=u",),
    ("-H", f"Authorization: Bearer {WORD}"),
    ("-H", f"X-Api-Key: {WORD}"),
    ("--config", f'{{{{"lr": 1, "api_key": "{WORD}"}}}}'),
    ("bash", "-c", f"WANDB_API_KEY={WORD} python t.py --lr {{lr}}"),
    ("bash", "-c", f"export HF_TOKEN='{WORD}'; python t.py --lr 1"),
    ("bash", "-c", f'python t.py --verbose --api-key "{WORD}" --lr {{lr}} || exit 1'),
    ("bash", "-c", f"python t.py --db postgresql://u:{WORD}@h/d --lr 1"),
    ("bash", "-c", f'curl -H "Authorization: Bearer {WORD}" h'),
    ("--webhook", f"https://hooks.slack.com/services/T0/B0/{WORD}"),
    ("hf_" + WORD * 4,),
    ("--x", f"ghp_{WORD * 4}"),
]


def filled(command: Sequence[str], values: dict[str, str]) -> list[str]:
    """The arguments as they are started: references have their values, other places stay."""
    return [
        "".join(
            piece if isinstance(piece, str) else values.get(piece.name, f"<{piece.name}>")
            for piece in parse(word)
        )
        for word in command
    ]


@pytest.mark.parametrize("words", IN_ARGUMENTS, ids=" ".join)
def test_a_secret_is_taken_out_wherever_it_stands(words: tuple[str, ...]) -> None:
    """Nothing of it is stored or shown, nothing else is hidden, and training gets it."""
    forget_secrets()
    command = ("python", "t.py", *words, "--last", "3")
    shown = hide_arguments(command)
    assert WORD not in " ".join(shown) and WORD not in mask(" ".join(command))
    study, secrets = take_out(make(command))
    assert secrets and WORD not in " ".join(study.command)
    assert filled(study.command, values_of(secrets)) == filled(command, {})
    assert take_out(study) == (study, {})
    assert study.command[-2:] == ("--last", "3") and "ps" in notes(make(command))[0]
    # A change beside it is one of the study.
    for beside in ("--lr 1", "{lr}", "b=2", "page=1"):
        if beside in " ".join(words):
            assert beside in " ".join(study.command)


@pytest.mark.parametrize(
    "words",
    [
        ("-p", "8080", "-k", "5"),
        ("--max-tokens", "5", "--keys=3", "--n-pass", "2", "--pwd", "/data"),
        ("bash", "-c", 'python t.py --lr {lr} --keys "a b" && HF_TOKEN=$HF_TOKEN x'),
        ("--yaml", "key: 3"),
        ("git@github.com:a/b.git", "ssh://git@h/x", "https://h:8080/x?page=2", "me@example.org"),
        ("--api-key", "{key}"),
        ("--model", "sk-learn-a-long-name-in-lower-case-2"),
        ("{{", "}}"),
    ],
    ids=" ".join,
)
def test_what_is_no_secret_stays_in_the_command(words: tuple[str, ...]) -> None:
    assert take_out(make(words)) == (make(words), {})


def test_whatever_is_taken_out_comes_back() -> None:
    """Training's arguments are the same, letter by letter."""
    rng = random.Random(17)
    bits = [
        *("--api-key ", "token=", "HF_TOKEN=", "Authorization: Bearer ", "://", "https://", "@"),
        *(
            "'",
            '"',
            " ",
            ";",
            "{{",
            "}}",
            "{lr}",
            "$",
            "=",
            ":",
            "-",
            "?",
            "&",
            "/",
            "\\",
            "x",
            "é",
        ),
        *(WORD, "lr=1", '"api_key": ', "password = ", "\n", "u:p@h", "ghp_" + "a" * 36),
    ]
    for _ in range(3000):
        command = ["".join(rng.choices(bits, k=rng.randint(1, 9))) for _ in range(3)]
        study, secrets = take_out(make(command))
        assert filled(study.command, values_of(secrets)) == filled(command, {}), command
        forget_secrets()
