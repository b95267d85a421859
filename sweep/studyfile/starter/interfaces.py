"""How a script takes its values, where that is neither argparse nor click: read from its source.

Each reader looks for one library's call and returns the flags that it makes of functions, classes,
globals or configuration files. Nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.studyfile.starter.click_groups import read_group
from sweep.studyfile.starter.config_objects import read_config_flags, read_merged
from sweep.studyfile.starter.flags import TYPES, Flag, likeliest, literal
from sweep.studyfile.starter.hydra_app import read_application
from sweep.studyfile.starter.hydra_values import read_values
from sweep.studyfile.starter.python_flags import (
    CONFIGS,
    TRAINING_ARGUMENTS,
    Sources,
    arguments_of,
    flags_of_class,
    flags_of_fields,
    flags_of_function,
    make_flag,
)
from sweep.studyfile.starter.yacs import read_pairs

# LightningCLI takes callbacks by their name.
LIGHTNING_REPORTS = "--trainer.callbacks+=sweep.integrations.lightning.SweepCallback"


@dataclass(frozen=True)
class Interface:
    """What a script can be given, and in which form.

    Attributes:
        name: Of the library, for the reader.
        spread: The placeholder that passes all values.
        flags: As for argparse; their names are what is passed.
        before: Arguments before all others, such as a subcommand.
        after: Arguments at the end.
        joined: Whether a value belongs to its option by "=", and never follows it.
        reports: The argument by which sweep's callback reports what the script logs; "" for none.
        pairs: What is given at the end as name and value, without a dash.
        pairs_option: The flag after which these stand; "" for none.
        outer: Options that stand before ``before``: those of the parser of all subcommands.
        others: Subcommands of the script that were not taken.
    """

    name: str
    flags: Sequence[Flag] = ()
    spread: str = "{params}"
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    joined: bool = False
    prefix: str = "--"
    reports: str = ""
    pairs: Sequence[Flag] = ()
    pairs_option: str = ""
    outer: frozenset[str] = frozenset()
    others: Sequence[str] = ()


def read_interface(sources: Sources) -> Interface | None:
    """Return what a script's library makes of it, or None for another kind of script."""
    for read in _READERS:
        try:
            found = read(sources)
        except RecursionError:
            continue
        if found is not None:
            return found
    return None


# ------------------------------------------------------------------------------ the readers


def _read_config_flags(sources: Sources) -> Interface | None:
    found = read_config_flags(sources)
    if found is None:
        return None
    absl = _read_absl(sources)
    own, before = found
    # DEFINE_config_file is none of absl's own.
    plain = [flag for flag in (absl.flags if absl else ()) if flag.type != "list"]
    return Interface("ml_collections", [*plain, *own], before=before, joined=True)


def _read_merged(sources: Sources) -> Interface | None:
    flags = read_merged(sources)
    return Interface("merge_from_args", flags, joined=True) if flags else None


def _read_yacs(sources: Sources) -> Interface | None:
    found = read_pairs(sources)
    if found is None:
        return None
    pairs = [
        Flag(name, "switch" if isinstance(value, bool) else type(value).__name__, value)
        for name, value in found.values.items()
    ]
    return Interface("yacs", found.flags, pairs=pairs, pairs_option=found.option)


def _read_absl(sources: Sources) -> Interface | None:
    flags = []
    kinds = {"integer": "int", "float": "float", "string": "str", "enum": "str"}
    for called, call in sources.calls:
        found = re.fullmatch(r"(?:\w+\.)*DEFINE_(\w+)", called)
        name = literal(call.args[0]) if found and call.args else None
        if not found or not isinstance(name, str):
            continue
        words = {keyword.arg: keyword.value for keyword in call.keywords}
        default = literal(words.get("default", call.args[1] if len(call.args) > 1 else None))
        kind = kinds.get(found[1], "")
        if found[1] in ("bool", "boolean"):
            kind = "switch"
        elif not kind:
            kind = "list"
        values = words.get("enum_values", call.args[2] if len(call.args) > 2 else None)
        choices = literal(values) if found[1] == "enum" else None
        flags.append(
            Flag(f"--{name}", kind, default, tuple(choices) if isinstance(choices, list) else ())
        )
    return Interface("absl", flags) if flags else None


def _read_typer(sources: Sources) -> Interface | None:
    if not re.search(r"\btyper\b", sources.text):
        return None
    functions = sources.functions
    commands = [
        node
        for node in sources.tree.body
        if isinstance(node, ast.FunctionDef)
        and any(re.search(r"\.command\b", ast.unparse(one)) for one in node.decorator_list)
    ]
    for called, call in sources.calls:
        if called == "typer.run" and call.args and ast.unparse(call.args[0]) in functions:
            commands = [functions[ast.unparse(call.args[0])]]  # alone, whatever an app has
            break
    if not commands:
        return None
    names = [_command_name(one) for one in commands]
    name = likeliest(names)
    command = commands[names.index(name)] if name else commands[0]
    before = names[names.index(name) :][:1] if name and len(commands) > 1 else []
    flags = [_typer_flag(arg, default, sources) for arg, default in arguments_of(command)]
    others = [one for one in names if one != name]
    return Interface("Typer", [flag for flag in flags if flag], before=before, others=others)


def _command_name(function: ast.FunctionDef) -> str:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and decorator.args:
            name = literal(decorator.args[0])
            if isinstance(name, str):
                return name
    return function.name.replace("_", "-")


def _likeliest(functions: Sequence[ast.FunctionDef]) -> ast.FunctionDef:
    for name in ("train", "main", "fit", "run"):
        for function in functions:
            if function.name == name:
                return function
    return functions[0]


def _typer_flag(argument: ast.arg, default: ast.AST | None, sources: Sources) -> Flag | None:
    annotation: ast.AST | None = argument.annotation
    info: ast.Call | None = None
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).endswith(
        "Annotated"
    ):
        parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
        infos = [part for part in parts[1:] if isinstance(part, ast.Call)]
        info = infos[0] if infos else None
        annotation = parts[0] if parts else None
        names = info.args if info else []
    elif isinstance(default, ast.Call) and "typer" in ast.unparse(default.func):
        info = default
        words = {keyword.arg: keyword.value for keyword in info.keywords}
        default = info.args[0] if info.args else words.get("default")
        names = info.args[1:]
    else:
        names = []
    if annotation is not None and ast.unparse(annotation).endswith("Context"):
        return None
    is_argument = info is not None and ast.unparse(info.func).endswith("Argument")
    is_required = default is None or (isinstance(default, ast.Constant) and default.value is ...)
    given = [name for name in map(literal, names) if isinstance(name, str)]
    long = [name for name in given if name.startswith("--")]
    option = long[0] if long else f"--{argument.arg.replace('_', '-')}"
    if is_argument or (info is None and is_required):
        option = argument.arg
    flag = make_flag(argument.arg, annotation, default, sources, option=option)
    is_switch = flag.type == "bool" or isinstance(flag.default, bool) or "/" in option
    kind = "switch" if is_switch else flag.type
    return Flag(option, kind, flag.default, flag.choices, is_required)


def _read_click_group(sources: Sources) -> Interface | None:
    found = read_group(sources)
    if found is None:
        return None
    return Interface(
        "click", found.flags, before=[found.name], outer=found.outer, others=found.others
    )


def _read_fire(sources: Sources) -> Interface | None:
    functions, classes = sources.functions, sources.classes
    for called, call in sources.calls:
        if called not in ("fire.Fire", "Fire"):
            continue
        before: list[str] = []
        target = call.args[0] if call.args else None
        name = ast.unparse(target) if target is not None else ""
        if isinstance(target, ast.Dict):
            named = {
                str(literal(k)): ast.unparse(v)
                for k, v in zip(target.keys, target.values, strict=True)
            }
            key = next((k for k in ("train", "main", "fit") if k in named), next(iter(named), ""))
            before, name = [key], named.get(key, "")
        elif target is None:
            found = [n for n in sources.tree.body if isinstance(n, ast.FunctionDef)]
            if not found:
                continue
            name = _likeliest(found).name
            before = [name]
        if name in functions:
            return Interface(
                "Fire", flags_of_function(functions[name], sources, "keep"), before=before
            )
        if name in classes:
            methods = [n for n in classes[name].body if isinstance(n, ast.FunctionDef)]
            public = [m for m in methods if not m.name.startswith("_")]
            made = [m for m in methods if m.name == "__init__"]
            flags = [flag for m in made for flag in flags_of_function(m, sources, "keep")]
            if public:
                method = _likeliest(public)
                return Interface(
                    "Fire",
                    [*flags, *flags_of_function(method, sources, "keep")],
                    before=[*before, method.name],
                )
    return None


def _read_config_class(sources: Sources) -> Interface | None:
    """Read tyro, draccus, pyrallis, simple-parsing, jsonargparse and HfArgumentParser."""
    functions, classes = sources.functions, sources.classes
    text = sources.text
    for called, call in sources.calls:
        last = called.rpartition(".")[2]
        words = {keyword.arg: keyword.value for keyword in call.keywords}
        first = call.args[0] if call.args else words.get("config_class")
        name = ast.unparse(first) if first is not None else ""
        if called in ("tyro.cli", "tyro.extras.overridable_config_cli") or (
            last == "cli" and "tyro" in text
        ):
            if name in functions:
                return Interface("tyro", flags_of_function(functions[name], sources, "dash"))
            if name in classes:
                return Interface("tyro", flags_of_fields(classes[name], sources, "dash"))
        elif called in ("draccus.parse", "pyrallis.parse", "draccus.wrap", "pyrallis.wrap"):
            library = called.partition(".")[0]
            wrapped = [
                f
                for f in functions.values()
                if any(ast.unparse(d).startswith(called) for d in f.decorator_list)
            ]
            if last == "wrap" and wrapped:
                arguments = list(arguments_of(wrapped[0]))
                name = (
                    ast.unparse(arguments[0][0].annotation)
                    if arguments and arguments[0][0].annotation
                    else ""
                )
            if name in classes:
                flags = flags_of_fields(classes[name], sources, "keep")
                return Interface(library, flags)
        elif (last == "add_arguments" or called == "simple_parsing.parse" or last == "parse") and (
            "simple_parsing" in text
        ):
            if name in classes:
                flags = [
                    flag for _, one in sources.calls for flag in _simple(one, classes, sources)
                ] or flags_of_fields(classes[name], sources, "leaf")
                return Interface("simple-parsing", _unique(flags))
        elif last in ("HfArgumentParser", "TrlParser"):
            return Interface("HfArgumentParser", _unique(_hf(first, sources)))
        elif "jsonargparse" in text and last in ("CLI", "auto_cli", "auto_parser"):
            if name in functions:
                return Interface(
                    "jsonargparse", flags_of_function(functions[name], sources, "positional")
                )
            if name in classes:
                return Interface("jsonargparse", flags_of_fields(classes[name], sources, "keep"))
            if not name and functions:
                own = [n for n in sources.tree.body if isinstance(n, ast.FunctionDef)]
                if own:
                    command = _likeliest(own)
                    before = [command.name] if len(own) > 1 else []
                    flags = flags_of_function(command, sources, "positional")
                    return Interface("jsonargparse", flags, before=before)
        elif "jsonargparse" in text and last in (
            "add_class_arguments",
            "add_function_arguments",
            "add_dataclass_arguments",
        ):
            key = literal(words.get("nested_key", call.args[1] if len(call.args) > 1 else None))
            prefix = f"{key}." if isinstance(key, str) else ""
            found = flags_of_class(classes[name], sources, prefix) if name in classes else []
            if name in functions:
                found = flags_of_function(functions[name], sources, "keep")
                found = [Flag(f"--{prefix}{f.name}", f.type, f.default, f.choices) for f in found]
            if found:
                return Interface("jsonargparse", found)
    return None


def _simple(call: ast.Call, classes: dict[str, ast.ClassDef], sources: Sources) -> list[Flag]:
    if not ast.unparse(call.func).endswith((".add_arguments", "simple_parsing.parse", "parse")):
        return []
    name = ast.unparse(call.args[0]) if call.args else ""
    return flags_of_fields(classes[name], sources, "leaf") if name in classes else []


def _hf(given: ast.AST | None, sources: Sources) -> list[Flag]:
    classes = sources.classes
    items = given.elts if isinstance(given, ast.Tuple | ast.List) else [given] if given else []
    flags: list[Flag] = []
    for item in items:
        name = ast.unparse(item)
        if name in classes:
            flags += flags_of_fields(classes[name], sources, "keep")
        elif CONFIGS.fullmatch(name.rpartition(".")[2]):
            flags += TRAINING_ARGUMENTS
    # HfArgumentParser makes switches of booleans, and of those that are true by default none.
    return [
        Flag(f.option, "switch" if f.type == "bool" else f.type, f.default, f.choices, f.required)
        for f in flags
    ]


def _unique(flags: Iterable[Flag]) -> list[Flag]:
    return list({flag.option: flag for flag in flags}.values())


def _read_lightning(sources: Sources) -> Interface | None:
    classes = sources.classes
    for called, call in sources.calls:
        if called.rpartition(".")[2] != "LightningCLI" and not _is_cli(called, classes):
            continue
        words = {keyword.arg: keyword.value for keyword in call.keywords}
        flags = []
        for key, place, group in (("model_class", 0, "model"), ("datamodule_class", 1, "data")):
            given = words.get(key, call.args[place] if len(call.args) > place else None)
            name = ast.unparse(given) if given is not None else ""
            if name in classes:
                flags += flags_of_class(classes[name], sources, f"{group}.")
        flags += [Flag("--trainer.max_epochs", "int"), Flag("--seed_everything", "int", 0)]
        flags.append(Flag("--trainer.default_root_dir", "str"))
        if literal(words.get("run")) is False:
            return Interface("LightningCLI", flags, reports=LIGHTNING_REPORTS)
        flags.append(Flag("--ckpt_path", "str"))
        return Interface("LightningCLI", flags, before=["fit"], reports=LIGHTNING_REPORTS)
    return None


def _is_cli(called: str, classes: dict[str, ast.ClassDef]) -> bool:
    node = classes.get(called)
    return node is not None and any("LightningCLI" in ast.unparse(base) for base in node.bases)


def _read_hydra(sources: Sources) -> Interface | None:
    for app in read_application(sources.script):
        return Interface(
            "Hydra",
            [_value_flag(*item) for item in read_values(app, sources.tree).items()],
            spread="{overrides}",
            after=["hydra.run.dir={trial_dir}"],
            joined=True,
            prefix="",
        )
    return None


def _value_flag(name: str, value: Any) -> Flag:
    """Return what a configuration's value is to the command line; null may become anything."""
    kind = "switch" if isinstance(value, bool) else type(value).__name__
    if value is None:
        kind = ""
    return Flag(name, kind if kind in ("", "switch", *TYPES) else "list", value)


def _read_globals(sources: Sources) -> Interface | None:
    """Read a script that lets its arguments replace its globals, as nanoGPT does."""
    if not re.search(r"configurator\.py|globals\(\)\s*\[|globals\(\)\.update", sources.text):
        return None
    if "configurator.py" not in sources.text and "sys.argv" not in sources.text:
        return None
    flags = []
    for node in sources.tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, literal(node.value)
            if name.startswith("_") or not isinstance(value, bool | int | float | str):
                continue
            kind = "switch" if isinstance(value, bool) else type(value).__name__
            flags.append(Flag(f"--{name}", kind, value))
    return Interface("its globals", _unique(flags), joined=True) if flags else None


_READERS: tuple[Callable[[Sources], Interface | None], ...] = (
    _read_hydra,
    _read_lightning,
    _read_config_class,
    _read_typer,
    _read_click_group,
    _read_fire,
    _read_config_flags,
    _read_absl,
    _read_merged,
    _read_yacs,
    _read_globals,
)
