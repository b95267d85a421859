"""A first launch into a database of another encoding, or one that comes and goes."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests.chaos.tcp_proxy import Proxy
from tests.postgres_fixture import Server
from tests.toys import write_toy


@pytest.fixture
def odd_url(request: pytest.FixtureRequest, postgres_server: Server) -> Iterator[str]:
    """The URL of a new, empty database of the encoding that the test asks for."""
    name = f"t{secrets.token_hex(6)}"
    postgres_server.sql(f"CREATE DATABASE {name} ENCODING '{request.param}' TEMPLATE template0")
    yield postgres_server.url(name)
    postgres_server.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize(
    ("odd_url", "text"),
    [
        ("LATIN1", "学"),
        pytest.param("LATIN1", "größe", marks=pytest.mark.long),
        pytest.param("SQL_ASCII", "学", marks=pytest.mark.long),
        pytest.param("SQL_ASCII", "größe", marks=pytest.mark.long),
    ],
    indirect=["odd_url"],
)
def test_an_encoding(odd_url: str, text: str, tmp_path: Path, runs: Path, sweep: Any) -> None:
    """Parameters come back as they were, also what the encoding lacks. A metric with such a name is
    stored, or the trial's task says that it is not."""
    write_toy(tmp_path, name="toy", trials=2)
    study = tmp_path / "study.yaml"
    study.write_text(study.read_text().replace("choices: [a, b]", f"choices: [{text}, b]"))
    train = tmp_path / "train.py"
    said = f'loss=-score, **{{"{text}": 1.0}})'
    train.write_text(train.read_text().replace("loss=-score)", said))
    env = {"SWEEP_STORAGE": odd_url}
    ran = sweep("launch", "study.yaml", "--wait", env=env)
    assert ran.code == 0, ran
    rows = json.loads(sweep("collect", "--format", "json", env=env).out)
    assert [row["state"] for row in rows] == ["complete"] * 2
    assert {row["params"]["kind"] for row in rows} <= {text, "b"}
    with contextlib.closing(psycopg2.connect(odd_url)) as connection:
        connection.set_client_encoding("SQL_ASCII")
        cursor = connection.cursor()
        cursor.execute("SELECT DISTINCT convert_to(name, 'SQL_ASCII') FROM sweep_metric")
        names = {bytes(name) for (name,) in cursor}
    encoding = "latin-1" if "LATIN1" in encoding_of(odd_url) else "utf-8"
    try:
        expected = text.encode(encoding)
    except UnicodeEncodeError:  # noted, with all else stored
        logs = "".join(sweep("logs", "toy", str(number), env=env).out for number in (0, 1))
        assert names == {b"score", b"loss"} and text in logs, logs
    else:
        assert names == {b"score", b"loss", expected}


def encoding_of(url: str) -> str:
    with contextlib.closing(psycopg2.connect(url)) as connection:
        return str(connection.get_parameter_status("server_encoding"))


def test_a_first_launch_while_the_database_comes_and_goes(
    empty_url: str, postgres_server: Server, tmp_path: Path, sweep: Any
) -> None:
    """Connections are cut all the while that tables and trials are made: each once, or a refusal
    after which the same command does it."""
    proxy, over = Proxy(postgres_server.port), threading.Event()

    def cut() -> None:
        for pause_s in (0.01, 0.05, 0.1, 0.2, 0.3, 0.3, 0.5):
            if not over.wait(pause_s):
                proxy.cut()

    write_toy(tmp_path, name="toy", trials=3)
    env = {"SWEEP_STORAGE": empty_url.replace(f":{postgres_server.port}/", f":{proxy.port}/")}
    cutter = threading.Thread(target=cut)
    try:
        proxy.cut()
        cutter.start()
        codes = [sweep("launch", "study.yaml", "--wait", env=env).code]
        over.set()
        while codes[-1] != 0 and len(codes) < 3:
            codes.append(sweep("launch", "study.yaml", "--wait", env=env).code)
        assert codes[-1] == 0 and set(codes[:-1]) <= {1}, codes
        rows = json.loads(sweep("collect", "--format", "json", env=env).out)
        assert sorted(row["trial"] for row in rows) == [0, 1, 2]
        assert {row["state"] for row in rows} == {"complete"}
    finally:
        over.set()
        cutter.join()
        proxy.close()
