"""Whatever stands in a text from outside: an answer or a refusal, soon, in little memory."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.hostile.readers import READERS, Reader
from tests.hostile.trial import HANG_S, Found, try_reader

pytestmark = pytest.mark.real  # in processes of their own, and for a minute

ROOT = Path(__file__).parents[2]
SHORT, LONG = 60, 2000


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_it_answers_or_refuses(
    reader: Reader, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """No traceback, no hang, no memory without a bound."""
    count = LONG if request.config.getoption("--long") else SHORT
    found = try_reader(reader, count, tmp_path)
    assert found.faults == [], "\n\n".join(found.faults[:5])
    assert found.answers + found.refusals == count
    assert found.answers, "not even a text that is well is read"


def test_a_fault_is_found(tmp_path: Path) -> None:
    """A reader that raises, one that hangs and one that eats memory are found out."""

    def hang(data: bytes, folder: Path) -> None:
        while data:
            pass

    bad = {
        "KeyError": lambda data, folder: {}[data],
        "hangs": hang,
        "MemoryError": lambda data, folder: bytearray(1 << 40),
    }
    for word, read in bad.items():
        reader = Reader(word, ["a"], read)
        # A busy machine may keep any of them waiting for so long: only what hangs has little time.
        faults = try_reader(reader, 3, tmp_path, hang_s=0.2 if read is hang else HANG_S).faults
        assert faults and word in faults[0]
    assert isinstance(try_reader(Reader("fine", ["a"], lambda data, _: data), 3, tmp_path), Found)


# Modules that parse text which only sweep or its database has written, or which read no file.
OWN = {
    "sweep.cli": "its own source",
    "sweep.control.check.inside": "runs in the container: the question that sweep has written",
    "sweep.control.check.node_task": "the answer of sweep's own job, guarded there",
    "sweep.control.check.trackers": "the answer of W&B's server, guarded there",
    "sweep.control.tracker_gaps": "lines of sweep's own tasks, guarded there",
    "sweep.provenance.code_tree": "git's answers",
    "sweep.results.exports": "writes only",
    "sweep.results.shared_gpus": "lines of sweep's own tasks, guarded there",
    "sweep.schedulers.local.job": "the request that sweep has written",
    "sweep.search.own": "the answers of sweep's own child",
    "sweep.search.own_child": "the questions that sweep has written",
    "sweep.tasks.staging.copying": "the journal that sweep has written, in a folder of the user's",
    "sweep.storage.all_studies": "the database's rows",
    "sweep.storage.claims": "the database's rows",
    "sweep.storage.energy": "the database's rows",
    "sweep.storage.gpu_shares": "the database's rows",
    "sweep.storage.history": "the database's rows",
    "sweep.storage.optuna_studies": "the database's rows",
    "sweep.storage.profiles": "the database's rows",
    "sweep.storage.promotion": "the database's rows",
    "sweep.storage.proposals": "the database's rows",
    "sweep.storage.records": "the database's rows",
    "sweep.storage.replicates": "the database's rows",
    "sweep.storage.reports": "the database's rows",
    "sweep.storage.studies": "the database's rows",
    "sweep.storage.tables": "the database's rows",
    "sweep.storage.trial_rows": "the database's rows",
    "sweep.tasks.tracking.csv_files": "lines that it has written itself in the same attempt",
    "sweep.tasks.tracking.feeder": "lines that sweep has written, of a child",
    "sweep.training.images": "the plan that sweep has written for its own job",
    "sweep.training.profiling.stacks": "py-spy's dump, any error of its shape is caught",
    "sweep.training.command.apptainer": "writes only",
    "sweep.training.command.conda_and_modules": "conda's own file, any ValueError is caught",
    "sweep.studyfile.starter.python_text": "the parser itself, which others call",
    "sweep.provenance.machine": "CUDA's version.json, guarded there",
}
PARSERS = {
    *("json.loads", "json.load", "csv.reader", "csv.DictReader", "ast.parse", "ast.literal_eval"),
    *(
        "parse_python",
        "parse_expression",
        "read_literal",
        "yaml.compose",
        "yaml.load",
        "pickle.load",
        "pickle.loads",
        "tomllib.loads",
        "tomllib.load",
    ),
    *("ElementTree.parse", "ElementTree.fromstring", "configparser.ConfigParser"),
}


def test_no_reader_is_missing() -> None:
    """A module that parses text stands in a row of READERS, or says whose text it is."""
    known = {module for reader in READERS for module in reader.covers} | set(OWN)
    parsing = set()
    for path in (ROOT / "sweep").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if module.startswith("sweep.integrations"):
            continue  # within training: its framework's objects
        text = path.read_text()
        if not any(parser.rpartition(".")[2] in text for parser in PARSERS):
            continue
        calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
        if PARSERS & {ast.unparse(call.func) for call in calls}:
            parsing.add(module)
    assert sorted(parsing - known) == []
