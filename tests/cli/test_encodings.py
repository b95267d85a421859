"""A terminal or a file whose encoding lacks characters: they are written as JSON writes them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import click
import pytest

from sweep import cli
from sweep.cli import status

TEXT = 'größe "学" \U0001f600 \udcff'


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_no_output_is_a_fault(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of standard output and error, and JSON stays JSON of the same value."""

    @click.command()
    def say() -> None:
        print(json.dumps(TEXT, ensure_ascii=False))
        print(TEXT, file=sys.stderr)

    out, err = io.BytesIO(), io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding=encoding))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(err, encoding=encoding))
    monkeypatch.setattr(status, "status", say)
    code = cli.run_command(["status"])
    sys.stdout.flush()
    sys.stderr.flush()
    assert code == 0
    assert json.loads(out.getvalue().splitlines()[0].decode(encoding)) == TEXT
    said = err.getvalue().decode(encoding)
    assert said.startswith("größe" if encoding != "ascii" else r"gr\u00f6\u00dfe")


def test_a_read_only_folder_is_refused_in_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``init``, ``templates --copy`` and figures where nothing can be made: a file is in the way,
    which stops root too."""
    for name in ("file", "templates"):
        (tmp_path / name).write_text("x")
    (tmp_path / "train.py").write_text("import argparse\n")
    monkeypatch.chdir(tmp_path)
    for call in (
        ["init", "train.py", "--dir", "file/inner"],
        ["init", "train.py", "--dir", "file"],
        ["templates", "--copy", "task.sh.j2"],
    ):
        code = cli.run_command(call)
        said = capfd.readouterr().err
        assert (
            code in (1, 2) and ("file" in said or "templates" in said) and "Traceback" not in said
        ), (call, code, said)
        assert (tmp_path / "file").read_text() == "x"
