"""What W&B makes of sweep files; run by an interpreter that has ``wandb`` and ``sweeps``.

Reads {name: {"text": the file, "point": {parameter: value}}} from standard input and writes
{name: {"refused": why} or {"params": {…}, "argv": [...]}} for each. Imports nothing of sweep's.
"""

import json
import sys
import tempfile

import numpy
from sweeps.config.schema import fill_validate_schema
from sweeps.params import HyperParameter, HyperParameterSet
from wandb.sdk.launch.sweeps import utils

PLACES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
NEST = HyperParameterSet.NESTING_DELIMITER


def plain(value):
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        return value.item()
    return value


def read(text):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        found = utils.load_sweep_config(file.name)
    if found is None:
        raise ValueError("W&B reads no configuration in it")
    return found.get("sweep", found)


def describe(parameter):
    kind, config = parameter.type, parameter.config
    if kind == HyperParameter.CONSTANT:
        return {"constant": config["value"]}
    if kind in (HyperParameter.CATEGORICAL, HyperParameter.CATEGORICAL_PROB):
        return {"choices": config["values"]}
    return {"kind": kind, "q": config.get("q"), "at": [plain(parameter.ppf(u)) for u in PLACES]}


def run_argv(config, parameters, point):
    """Return the argv as the agent puts it together (wandb/wandb_agent.py, _command_run)."""
    for parameter in parameters:
        if parameter.type != HyperParameter.CONSTANT:
            parameter.value = point.get(parameter.name.replace(NEST, "."))
    words = utils.create_sweep_command(list(config["command"]) if "command" in config else None)
    known = utils.create_sweep_command_args({"args": parameters.to_config()})
    known["interpreter"], known["program"] = ["python"], [str(config.get("program", "EDIT_ME"))]
    known["env"], known["args_json_file"] = ["/usr/bin/env"], ["JSON_FILE"]
    argv = []
    for word in map(str, words):
        is_macro = word.startswith("${") and word.endswith("}")
        argv += (known.get(word[2:-1]) or []) if is_macro else [word]
    return argv


def judge(text, point):
    config = read(text)
    try:
        # Its rule for names is not the server's, which takes Hydra's signs.
        named = {f"p{n}": one for n, one in enumerate(config["parameters"].values())}
        fill_validate_schema({**config, "parameters": named})
        parameters = HyperParameterSet.from_config(config["parameters"])
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    params = {one.name.replace(NEST, "."): describe(one) for one in parameters}
    try:
        argv = run_argv(config, parameters, point)
    except TypeError:  # a date, which its agent cannot pass on either
        argv = None
    return {"params": params, "argv": argv}


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    sys.stdout, out = sys.stderr, sys.stdout  # what the packages print
    found = {name: judge(one["text"], one["point"]) for name, one in asked.items()}
    json.dump(found, out, default=str)
