"""Flags that libraries make of a function's arguments or of a class's fields."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.studyfile.starter.flags import TYPES, Flag, literal
from sweep.studyfile.starter.python_text import parse_expression

# transformers.TrainingArguments, as far as a search or a trial is concerned with them.
TRAINING_ARGUMENTS = (
    Flag("--output_dir", "str"),
    Flag("--learning_rate", "float", 5e-5),
    Flag("--weight_decay", "float", 0.0),
    Flag("--warmup_ratio", "float", 0.0),
    Flag("--per_device_train_batch_size", "int", 8),
    Flag("--num_train_epochs", "float", 3.0),
    Flag("--seed", "int", 42),
)
CONFIGS = re.compile(r"\w*TrainingArguments|[A-Z]{2,6}Config|RewardConfig")


@dataclass
class Sources:
    """The script and what it imports from its own project.

    Attributes:
        tree: Of the script.
        trees: Of the script and of the files that it imports.
        folder: Where the study's command will be called.
    """

    script: Path
    tree: ast.Module
    text: str
    trees: list[ast.Module] = field(default_factory=list)
    folder: Path = Path()

    @functools.cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        return {
            node.name: node
            for tree in reversed(self.trees)
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        }

    @functools.cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        return {
            node.name: node
            for tree in reversed(self.trees)
            for node in tree.body
            if isinstance(node, ast.FunctionDef)
        }

    @functools.cached_property
    def calls(self) -> list[tuple[str, ast.Call]]:
        """All calls with what is called, the script's own first."""
        return [
            (ast.unparse(node.func), node)
            for tree in self.trees
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
        ]


def find_computed(tree: ast.Module) -> set[str]:
    """Return the attributes that a script sets from others, always: ``args.batch_size =
    args.envs * args.steps``. Not those made of their own value, or under a condition."""
    conditional = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If | ast.Try | ast.While | ast.For) and not _is_main(node)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or id(node) in conditional:
            continue
        for target in node.targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                owner, given = target.value.id, ast.unparse(node.value)
                is_own = re.search(rf"\b{owner}\.{target.attr}\b|\b{target.attr}\b", given)
                if owner != "self" and re.search(rf"\b{owner}\.\w", given) and not is_own:
                    found.add(target.attr)
    return found


def _is_main(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def make_flag(
    name: str, annotation: ast.AST | None, default: ast.AST | None, sources: Sources, *, option: str
) -> Flag:
    """Return the flag of a typed name with a default."""
    value = literal(default)
    text = ast.unparse(annotation) if annotation is not None else ""
    text = re.sub(r"^(?:typing\.)?Optional\[(.*)\]$", r"\1", text)
    text = re.sub(r"\s*\|\s*None$", "", text)
    choices: tuple[Any, ...] = ()
    found = re.fullmatch(r"(?:typing\.)?Literal\[(.*)\]", text)
    if found:
        read = literal(parse_expression(f"[{found[1]}]"))
        choices = tuple(read) if isinstance(read, list) else ()
    classes = sources.classes
    if text in classes and any("Enum" in ast.unparse(base) for base in classes[text].bases):
        members = [
            literal(node.value) for node in classes[text].body if isinstance(node, ast.Assign)
        ]
        choices = tuple(one for one in members if isinstance(one, str | int))
    kind = text if text in TYPES else ""
    if not kind and isinstance(value, bool | int | float | str):
        kind = type(value).__name__
    if choices:
        kind = "str"
    elif re.match(r"(?:typing\.)?(list|tuple|set|dict|sequence)\b", text, re.IGNORECASE):
        kind = "list"
    is_required = default is None or (isinstance(default, ast.Constant) and default.value is ...)
    return Flag(option, kind, value, choices, is_required)


def arguments_of(function: ast.FunctionDef) -> Iterable[tuple[ast.arg, ast.AST | None]]:
    """Yield a function's named arguments with their defaults."""
    given = [*function.args.posonlyargs, *function.args.args]
    missing: list[ast.AST | None] = [None] * (len(given) - len(function.args.defaults))
    pairs = list(zip(given, [*missing, *function.args.defaults], strict=True))
    pairs += list(zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True))
    return [(argument, default) for argument, default in pairs if argument.arg != "self"]


def flags_of_function(function: ast.FunctionDef, sources: Sources, style: str) -> list[Flag]:
    """Return the flags of a function's arguments.

    Args:
        style: "keep" (--batch_size), "dash" (--batch-size), or "positional", where an argument
            without a default is no option.
    """
    flags = []
    for argument, default in arguments_of(function):
        name = argument.arg
        option = f"--{name.replace('_', '-') if style == 'dash' else name}"
        if default is None and style == "positional":
            option = name
        if default is None and _is_config(argument.annotation, sources):
            flags += _of_annotation(argument.annotation, sources, style, f"{name}.")
            continue
        flags.append(make_flag(name, argument.annotation, default, sources, option=option))
    return flags


def _is_config(annotation: ast.AST | None, sources: Sources) -> bool:
    return annotation is not None and ast.unparse(annotation) in sources.classes


def _of_annotation(
    annotation: ast.AST | None, sources: Sources, style: str, prefix: str
) -> list[Flag]:
    found = sources.classes.get(ast.unparse(annotation) if annotation else "")
    return flags_of_fields(found, sources, style, prefix) if found else []


def flags_of_fields(
    node: ast.ClassDef, sources: Sources, style: str, prefix: str = "", depth: int = 0
) -> list[Flag]:
    """Return the flags of a dataclass's fields, those of inner dataclasses and of bases too."""
    flags: list[Flag] = []
    classes = sources.classes
    if depth > 5:
        return flags
    for base in node.bases:
        name = ast.unparse(base)
        if name in classes and name != node.name:
            flags += flags_of_fields(classes[name], sources, style, prefix, depth + 1)
        elif CONFIGS.fullmatch(name.rpartition(".")[2]):
            flags += TRAINING_ARGUMENTS
    for entry in node.body:
        if not isinstance(entry, ast.AnnAssign) or not isinstance(entry.target, ast.Name):
            continue
        name, value = entry.target.id, entry.value
        text = ast.unparse(entry.annotation)
        if text.startswith("ClassVar"):
            continue
        if text in classes and not any("Enum" in ast.unparse(b) for b in classes[text].bases):
            inner = "" if style == "leaf" else f"{prefix}{name}."
            flags += flags_of_fields(classes[text], sources, style, inner, depth + 1)
            continue
        choices: Any = None
        if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in _FIELDS:
            words = {keyword.arg: keyword.value for keyword in value.keywords}
            choices = literal(words.get("choices"))
            first = value.args[0] if value.args else None
            value = words.get("default", first)
            if value is None and "default_factory" in words:
                made = words["default_factory"]
                value = made.body if isinstance(made, ast.Lambda) else ast.Constant(None)
        name = name.replace("_", "-") if style == "dash" else name
        full = f"--{prefix.replace('_', '-') if style == 'dash' else prefix}{name}"
        flag = make_flag(name, entry.annotation, value, sources, option=full)
        if isinstance(choices, list | tuple):
            flag = Flag(flag.option, "str", flag.default, tuple(choices), flag.required)
        flags.append(flag)
    return flags


_FIELDS = {"field", "arg", "choice", "mutable_field", "flag"}


def flags_of_class(node: ast.ClassDef, sources: Sources, prefix: str) -> list[Flag]:
    """Return the flags of what a class is made with: its ``__init__``, or its fields."""
    made = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    if not made:
        return flags_of_fields(node, sources, "keep", prefix)
    return [
        Flag(f"--{prefix}{flag.name}", flag.type, flag.default, flag.choices, flag.required)
        for flag in flags_of_function(made[0], sources, "keep")
    ]
