"""The JSON Schema says the same as the loader, as far as a schema can."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sweep.studyfile import json_schema
from sweep.studyfile.tree import parse

ROOT = Path(__file__).parents[2]
GOOD: dict[str, Any] = {
    "name": "s",
    "command": "train",
    "objective": {"metric": "acc", "direction": "maximize"},
    "space": {"x": {"type": "float", "low": 0, "high": 1}},
    "trials": 4,
}


def is_valid(data: Any) -> bool:
    return jsonschema.Draft202012Validator(json_schema()).is_valid(data)


def test_it_is_a_schema() -> None:
    """The schema itself is well formed."""
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("name", ["digits", "mnist", "any_command"])
def test_studies(name: str) -> None:
    """The studies of this project fit it."""
    root, problems = parse((ROOT / "studies" / f"{name}.yaml").read_text(), name)
    assert root is not None and not problems
    assert is_valid(root.plain())


@pytest.mark.parametrize(
    "change",
    [
        {"trails": 3},
        {"trials": 0},
        {"trials": "many"},
        {"name": "a/b"},
        {"command": []},
        {"objective": {"metric": "acc", "direction": "max"}},
        {"objective": {"metric": "acc"}},
        {"space": {"x": {"type": "float", "low": 0}}},
        {"space": {"x": {"type": "normal", "mu": 0}}},
        {"space": {"x": {"type": "categorical", "choices": []}}},
        {"space": {"x": {"type": "int", "low": 0.5, "high": 2}}},
        {"sampler": "tpee"},
        {"sampler": {"type": "tpe", "gamma": 1}},
        {"pruner": {"type": "percentile"}},
        {"pruner": {"type": "asha", "reduction_factor": 1}},
        {"resources": {"time": 30}},
        {"resources": {"memory": 8000}},
        {"resources": {"gpus": "2"}},
        {"resources": {"gpu": 2}},
        {"retry": {"max_attempts": 0}},
        {"slurm": {"slots": 0}},
        {"environment": {"runtime": "docker"}},
        {"storage": "sqlite:///x.db"},
        {"storage": {"embedded": "there"}},
        {"storage": {"embedded": {"listen": "*"}}},
        {"storage": {"embedded": {"place": "here"}}},
        {"executor": "slrum"},
    ],
)
def test_malformed(change: dict[str, Any]) -> None:
    """What the loader refuses by one key alone, an editor marks as well."""
    assert is_valid(GOOD)
    assert not is_valid(GOOD | change)


def test_missing_keys() -> None:
    """The required keys are required; a grid needs no trials."""
    for key in ("name", "command", "objective", "space"):
        assert not is_valid({name: value for name, value in GOOD.items() if name != key})


def properties(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each documented key of the schema with its path."""
    if isinstance(schema, list):
        for one in schema:
            yield from properties(one, path)
    elif isinstance(schema, dict):
        for name, value in schema.get("properties", {}).items():
            yield f"{path}.{name}", value
            yield from properties(value, f"{path}.{name}")
        for word in ("anyOf", "items", "additionalProperties"):
            yield from properties(schema.get(word), path)


def test_hover_texts() -> None:
    """Every key has a sentence for people, and an example that fits it."""
    found = dict(properties(json_schema()))
    assert len(found) > 80
    for path, schema in found.items():
        assert schema["description"].endswith("."), path
        for example in schema["examples"]:
            jsonschema.Draft202012Validator(schema).validate(example)
