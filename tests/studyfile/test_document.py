"""The reference of study files: its tables are the loader's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import pytest

from sweep.core.errors import InputError
from sweep.studyfile import document, json_schema, loads
from sweep.studyfile.address import EMBEDDED, STORAGE
from sweep.studyfile.data_keys import DATA_SET, STAGING
from sweep.studyfile.document import renew, shown_default
from sweep.studyfile.keys import CONFIG, RETRY, STUDY
from sweep.studyfile.notify_keys import NOTIFY
from sweep.studyfile.objective_keys import OBJECTIVE
from sweep.studyfile.sections import REQUIRED, Section
from sweep.studyfile.site_keys import DDP, ENVIRONMENT, RESOURCES, SERVICE, SLURM
from sweep.studyfile.space_keys import PARAMETERS

PLAIN = (CONFIG, RETRY, RESOURCES, SERVICE, DDP, NOTIFY, STAGING, STORAGE.section)
PATH = Path(__file__).parents[2] / "docs" / "study-file.md"


def test_the_committed_tables_are_the_generated_ones():
    """A changed key comes with its line: make reference."""
    text = PATH.read_text(encoding="utf-8")
    assert renew(text) == text


def test_every_key_of_the_schema_has_its_line():
    """Whatever an editor completes is explained, at every depth."""

    def names(schema: object) -> set[str]:
        if isinstance(schema, list):
            return set().union(*map(names, schema))
        if not isinstance(schema, dict):
            return set()
        own = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
        return own.union(*map(names, schema.values()))

    text = document.document()
    assert [name for name in sorted(names(json_schema())) if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize(
    ("name", "value", "default"),
    [
        ("name", "text", "**required**"),
        ("trials", "whole number from 1 to 100000", ""),
        ("seed", "whole number of at least 0", "`0`"),
        ("grace", "time", "`60s`"),
        ("sampler", "name, or keys", "`auto`"),
        ("executor", "`auto` or `slurm` or `local`", "`auto`"),
        ("tasks", "whole number from 1 to 100000 or `auto`", ""),
        ("points", "list of names with values, or a CSV file", ""),
        ("retry", "keys", ""),
    ],
)
def test_values_and_defaults_in_words(name: str, value: str, default: str):
    """People read what a key takes and what it is when absent."""
    key = STUDY.keys[name]
    assert (key.rule.in_words, shown_default(key)) == (value, default)


@pytest.mark.parametrize(
    ("sections", "without"),
    [
        ([STUDY], {"source", "own_workdir", "datasets"}),
        ([OBJECTIVE], {"step_pattern"}),  # by what `from` holds
        (PARAMETERS.values(), {"name"}),
        ([ENVIRONMENT], {"built"}),
        ([DDP], {"written"}),
        ([STORAGE.section], {"listen"}),  # by what `embedded` holds
        ([EMBEDDED], set()),
        ([DATA_SET], set()),
        *(
            ([section], set())
            for section in (*PLAIN, SLURM)
            if section not in (DDP, STORAGE.section)
        ),
    ],
)
def test_every_field_has_its_key(sections: Iterable[Section], without: set[str]):
    """A field that no key fills would keep its default in every study, and nobody would say so."""
    filled = {key.field for section in sections for key in section.keys.values()}
    fields = {one.name for section in sections for one in dataclasses.fields(section.fills)}
    assert fields - filled == without


def test_a_key_is_absent_as_its_field_says():
    """A default is told once: a changed field is a changed default of the file."""
    for section in (*PLAIN, SLURM, ENVIRONMENT):
        made = section.fills()
        for key in section.keys.values():
            assert key.default == getattr(made, key.field)
    assert STUDY.keys["name"].default is REQUIRED  # its field has none


def test_the_first_example_loads():
    """The study file that the reference begins with is one."""
    example = PATH.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    assert loads(example, "study-file.md").name == "digits"


def test_a_document_without_marks_is_refused():
    """Nothing is written over a file that is not the reference."""
    with pytest.raises(InputError, match="marks"):
        renew("# Something else\n")
