"""No part of a password is printed, by whichever way it comes: one masker, thousands of passwords.

Each way prints what sweep would print of a password that somebody gave it: a URL as it was typed
(with what should have been encoded in it), an option, a variable, a key of a study file, and the
errors of libpq and SQLAlchemy that quote a part of it. A password is a few words that are nowhere
else, held together by what takes URLs and texts apart; none of its words may be left.
"""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote

import psycopg2
import pytest
import sqlalchemy
from psycopg2.extensions import parse_dsn

from sweep.core import masking
from sweep.core.errors import SweepError
from sweep.core.masking import (
    hide_arguments,
    keep_environment,
    keep_secret,
    mask,
    mask_url,
    names_secret,
)
from sweep.core.system.crash import write_crash
from sweep.storage.url import describe, dsn, normalise
from sweep.studyfile import load
from sweep.studyfile.origins import origins

LETTERS = "bcdfghjkmnpqrtvwxzBCDFGHJKMNPQRTVWXZ23456789"
OTHERS = "éßñłøžДЖЩ中文字漢ｱｲｳ"
BREAKS = ["@", "/", ":", "?", "#", "%", "&", "=", "+", " ", "'", '"', "\\", "{", "}", "[", "]", ";"]
BREAKS += ["%40", "%2F", "%zz", "://", "@@", "$", "`", "|", "<", ">", ",", "!", "*", "(", ")", "~"]
BREAKS += ["\t", "?password=", "&sslmode=", "@host/", ":5432/", "--", "\\'", "' ", "''", ""]

STUDY = """
name: s
command: python train.py
objective: {metric: loss}
space: {x: {type: float, low: 0, high: 1}}
trials: 1
"""


def make_password(chance: random.Random) -> tuple[str, list[str]]:
    """Return a password and its words."""
    words = []
    for _ in range(chance.randint(1, 4)):
        letters = LETTERS if chance.random() < 0.8 else OTHERS
        words.append("".join(chance.choice(letters) for _ in range(chance.randint(6, 14))))
    text = words[0]
    for word in words[1:]:
        text += chance.choice(BREAKS) + word
    if chance.random() < 0.3:  # as 42/word@host did: what stands first looks like a port
        text = f"{chance.randint(1, 65535)}{chance.choice(BREAKS)}{text}"
    if chance.random() < 0.2:
        text += chance.choice(BREAKS)
    return text, words


def make_url(password: str, chance: random.Random) -> str:
    """Return a URL with the password in it, encoded more or less well, and other mistakes."""
    written = chance.choice([password, password, quote(password), quote_plus(password, safe="")])
    shapes = [
        "postgresql://user:{}@host:5432/db",
        "postgresql://user:{}@host/db?sslmode=require",
        "postgres://:{}@host",
        "postgresql+psycopg2://us%20er:{}@[::1]:5432/db",
        "postgresql://user:{}@a:1,b:2/db",
        "postgresql://user@host/db?password={}",
        "postgresql:///db?user=u&password={}&host=/run/pg",
        "postgresql://user:{}@host:port/db",
        "postgresql://user:{}@/db",
        "postgresql://host/db?sslpassword={}",
        "mysql://user:{}@host/db",
        "postgresql:user:{}@host/db",
        "postgresql:/user:{}@host/db",
        "user:{}@host/db",
        "host=h user=u password='{}' dbname=d",
        "host=h password={}",
    ]
    return chance.choice(shapes).format(written)


def said(call: Callable[[], object]) -> str:
    """Return what a call's answer or its error says."""
    try:
        return str(call())
    except SweepError as error:
        return f"{error}\n{error.args}\n{error.message}\n{error.hint}"


def crash(root: Path, error: BaseException, arguments: list[str]) -> str:
    path = write_crash(root, error, arguments)
    text = path.read_text()
    path.unlink()
    return text


def caught(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    return ValueError("nothing was raised")


Way = Callable[[str, str, Path], str]


def by_refusal(url: str, password: str, folder: Path) -> str:
    try:
        normalise(url)
    except SweepError as error:
        return f"{mask_url(url)} {error}"
    return mask_url(url)


def by_description(url: str, password: str, folder: Path) -> str:
    return said(lambda: describe({k: v for k, v in dsn(url).items() if k != "password"}))


def by_storage_key(url: str, password: str, folder: Path) -> str:
    path = folder / "study.yaml"
    path.write_text(f"{STUDY}storage: {json.dumps(url)}\n")
    return said(lambda: origins(path, (), {}))


def by_setting(url: str, password: str, folder: Path) -> str:
    path = folder / "study.yaml"
    path.write_text(STUDY)
    settings = [f"storage={json.dumps(url)}", f"storage={url}", f"storage.url={url}"]
    settings += [f"environment.env.DB_PASSWORD={password}", f"fixed.api_key={password}"]
    one = settings[len(url) % len(settings)]
    text = said(lambda: origins(path, (one,), {}))
    return f"{text}\n{hide_arguments(['launch', 's.yaml', '--set', one])}"


def by_variable(url: str, password: str, folder: Path) -> str:
    keep_environment({"SWEEP_STORAGE": url, "PGPASSWORD": password, "HF_TOKEN": password})
    error = SweepError(
        f"could not connect to {url} as {password!r}", f"Try {shlex.quote(password)}."
    )
    return f"{error} {mask(json.dumps({'url': url}))} {mask(repr((url, password)))}"


def by_crash(url: str, password: str, folder: Path) -> str:
    keep_environment({"SWEEP_STORAGE": url})
    errors = [
        caught(lambda: parse_dsn(url)),
        caught(lambda: parse_dsn(url + " options='")),
        caught(lambda: sqlalchemy.create_engine(url)),
        caught(lambda: sqlalchemy.make_url(url + ":x")),
        caught(lambda: int(password)),
        caught(lambda: psycopg2.connect(host="/nowhere", port=password, dbname="d")),
        caught(lambda: {}[url]),
        OSError(2, "No such file", password),
    ]
    arguments = ["launch", "s.yaml", "--set", f"storage={url}", "--api-key", password]
    keep_secret(password)  # what training gets by a variable or an option is known
    return crash(folder, errors[len(url) % len(errors)], arguments)


def by_argument(url: str, password: str, folder: Path) -> str:
    argv = ["train.py", "--api-key", password, f"--hf-token={password}", f"password={password}"]
    return json.dumps(hide_arguments(argv))


def by_keywords(url: str, password: str, folder: Path) -> str:
    escaped = password.replace("\\", "\\\\").replace("'", "\\'")
    bare = "" if any(letter.isspace() for letter in password) else f"password={password} "
    record = json.dumps({"password": password, "user": "u"})
    return mask(f"could not connect: host=h {bare}user=u password = '{escaped}' dbname=d; {record}")


WAYS: list[Way] = [
    by_refusal,
    by_description,
    by_storage_key,
    by_setting,
    by_variable,
    by_crash,
    by_argument,
    by_keywords,
]
LONG_COUNT, SHORT_COUNT = 20_000, 300


@pytest.mark.parametrize("way", WAYS)
def test_no_part_of_a_password_is_printed(
    way: Way, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Every password, in every shape of URL: no word of it is left, encoded or not."""
    chance = random.Random(f"17 {way.__name__}")
    for number in range(LONG_COUNT if request.config.getoption("--long") else SHORT_COUNT):
        password, words = make_password(chance)
        url = make_url(password, chance)
        masking.forget_secrets()
        text = way(url, password, tmp_path)
        forms = text, unquote(text), text.encode().decode("unicode_escape", "replace")
        left = [word for word in words for form in forms if word in form]
        assert not left, f"password {number} {password!r} in {url!r}: {left} is left in\n{text}"


def test_the_test_finds_what_is_left(tmp_path: Path) -> None:
    """The passwords are such that a simple masker lets some through: this test can fail."""
    import re

    chance, left = random.Random(1), 0
    for _ in range(1000):
        password, words = make_password(chance)
        text = re.sub(r"(\w+://[^\s:/@]*:)[^\s@]+@", r"\1***@", make_url(password, chance))
        left += any(word in text for word in words)
    assert 100 < left < 1000


KEPT = [
    "postgresql://user@host:5432/db",
    "see https://docs.example.org/page?x=1 and mail me@example.org",
    "study digits: 30 trials (--array=0-29%4); 3 are left",
    "lr=1e-3 tokens=5 key=value --max-tokens 5 --keys 3",
    "Give another file: -o FILE.",
]


@pytest.mark.parametrize("text", KEPT)
def test_what_is_no_secret_stays(text: str) -> None:
    """Plain text comes out as it was."""
    assert mask(text) == text


def test_a_password_that_is_a_common_word_garbles_nothing() -> None:
    """sweep:sweep@localhost/sweep is a usual URL: its password is hidden by its place alone."""
    keep_environment({"SWEEP_STORAGE": "postgresql://sweep:sweep@localhost/sweep"})
    keep_environment({"SWEEP_STORAGE": "postgresql://ab:ab@localhost/ab"})
    assert mask("sweep launch, ab") == "sweep launch, ab"
    shown = mask("at postgresql://sweep:sweep@localhost/sweep")
    assert shown == "at postgresql://sweep:***@localhost/sweep"


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["t", "--api-key", "X1", "--lr", "1"], ["t", "--api-key", "***", "--lr", "1"]),
        (["t", "--hf_token=X1"], ["t", "--hf_token=***"]),
        (["t", "token=X1", "+model.api_key=X1"], ["t", "token=***", "+model.api_key=***"]),
        (["t", "--token", "{token}"], ["t", "--token", "{token}"]),
        (["t", "--password", "--lr", "1"], ["t", "--password", "--lr", "1"]),
        (["t", "--max-tokens", "5", "--keys", "3"], ["t", "--max-tokens", "5", "--keys", "3"]),
        (["t", "postgresql://u:p@h/d"], ["t", "postgresql://u:***@h/d"]),
        (["launch", "--set", "storage=postgresql://u:p/q@h/d"],
         ["launch", "--set", "storage=postgresql://u:***@h/d"]),
    ],
)  # fmt: skip
def test_arguments(argv: list[str], shown: list[str]) -> None:
    """Values of options that name secrets are hidden, others stay."""
    assert hide_arguments(argv) == shown


def test_names() -> None:
    """What names a secret, and what only looks like it."""
    secret = [
        "--api-key",
        "HF_TOKEN",
        "db.password",
        "WANDB_API_KEY",
        "client-secret",
        "PGPASSWORD",
    ]
    plain = [
        "--keys",
        "max_tokens",
        "tokenizer",
        "monkey",
        "keyboard",
        "PGHOST",
        "TOKENIZERS_PARALLELISM",
    ]
    assert [name for name in secret if not names_secret(name)] == []
    assert [name for name in plain if names_secret(name)] == []


def test_load_refuses_a_password_and_hides_it(tmp_path: Path) -> None:
    """A study file may not hold one; what is wrong is said without it."""
    path = tmp_path / "study.yaml"
    path.write_text(f"{STUDY}storage: postgresql://u:42/word@host/db\n")
    with pytest.raises(SweepError) as caught:
        load(path)
    assert "must not hold a password" in str(caught.value)
    assert "word" not in str(caught.value).replace("password", "")
