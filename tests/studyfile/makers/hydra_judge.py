"""What Hydra's parser and its Optuna plugin make of configurations; run by an interpreter that has
``hydra-core`` and ``hydra-optuna-sweeper`` (with an Optuna below 3, which the plugin needs).

Reads {name: {"text": the file, "argv": ["lr=0.1", …], "is_basic": …, "is_grid": …}} from standard
input and writes {name: {"params": {…}, "argv": {…}}}. Imports nothing of sweep's.
"""

import itertools
import json
import sys

import yaml
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra_plugins.hydra_optuna_sweeper import _impl
from omegaconf import OmegaConf
from optuna import distributions

PARSER = OverridesParser.create()


def text_of(value):
    """Return a parsed value as plain data: a quoted text without its quotes."""
    if isinstance(value, list):
        return [text_of(one) for one in value]
    if isinstance(value, dict):
        return {text_of(key): text_of(one) for key, one in value.items()}
    return getattr(value, "text", value)


def parsed(override):
    return text_of(PARSER.parse_override(override).value())


def describe(name, found, is_grid):
    if is_grid and not isinstance(found, distributions.CategoricalDistribution):
        sweeper = _impl.OptunaSweeperImpl.__new__(_impl.OptunaSweeperImpl)
        return {"values": [parsed(f"{name}={v}") for v in sweeper._to_grid_sampler_choices(found)]}
    if isinstance(found, distributions.CategoricalDistribution):
        return {"choices": [parsed(f"{name}={choice}") for choice in found.choices]}
    kind = type(found).__name__
    step = getattr(found, "q", getattr(found, "step", None))
    return {
        "type": "int" if kind.startswith("Int") else "float",
        "low": found.low,
        "high": found.high,
        "log": "Log" in kind,
        "step": None if "Log" in kind or (step == 1 and kind.startswith("Int")) else step,
    }


def of_basic(overrides):
    """Return all values that Hydra's own sweeper gives each name."""
    sweeper = BasicSweeper(max_batch_size=None)
    batches = sweeper.split_arguments(PARSER.parse_overrides(overrides), max_batch_size=None)
    values = {}
    for word in itertools.chain.from_iterable(itertools.chain.from_iterable(batches)):
        name = word.partition("=")[0]
        one = parsed(word)
        if one not in values.setdefault(name, []):
            values[name].append(one)
    return {name: {"values": found} for name, found in values.items()}


def judge(text, argv, is_basic, is_grid):
    config = OmegaConf.create(yaml.load(text, OmegaConf_loader()))
    at = "hydra.sweeper" if "hydra" in config else ""
    sweeper = OmegaConf.select(config, at) if at else config
    found = {}
    for name, value in (sweeper.get("search_space") or {}).items():
        try:
            distribution = _impl.create_optuna_distribution_from_config(value)
        except Exception as error:
            found[str(name)] = {"refused": f"{type(error).__name__}: {error}"}
            continue
        found[str(name)] = describe(str(name), distribution, is_grid)
    params = OmegaConf.to_container(sweeper.params) if sweeper.get("params") else {}
    overrides = []
    for name in params:
        if name.startswith("~"):  # takes something out of the configuration
            continue
        try:
            word = f"{name!s}={sweeper.params[name]}"
            if is_basic:
                PARSER.parse_override(word)
                overrides.append(word)
                continue
            made, fixed = _impl.create_params_from_overrides([word])
            for key, one in made.items():
                found[key] = describe(key, one, is_grid)
            for key, one in fixed.items():
                found[key] = {"constant": parsed(f"{key}={one}")}
        except Exception as error:
            found[name] = {"refused": f"{type(error).__name__}: {error}"}
    if is_basic:
        refused = {name: one for name, one in found.items() if "refused" in one}
        words = [w for w in overrides if "interval(" not in w]
        found = {**refused, **of_basic(words)}
    return {"params": found, "argv": {word.partition("=")[0]: parsed(word) for word in argv}}


def OmegaConf_loader():
    from omegaconf._utils import get_yaml_loader

    return get_yaml_loader()


if __name__ == "__main__":
    json.dump({name: judge(**one) for name, one in json.load(sys.stdin).items()}, sys.stdout)
