"""Calls a Python function as one training: what runs where ``sweep.launch`` was given a function.

    python -m sweep.integrations.function --metric loss train:train CONFIG.json

The function gets its configuration, a dict of the trial's parameters, fixed values and seed, and,
where it takes two arguments, a ``Reporter``. What it returns is its last report: a number of the
first metric, or a dict of metrics; None where it has reported all by itself.
"""

import argparse
import importlib
import inspect
import json
import numbers

from sweep.report import Reporter


def main():
    parser = argparse.ArgumentParser(prog="python -m sweep.integrations.function")
    parser.add_argument("--metric", required=True, help="what a returned number is")
    parser.add_argument("function", metavar="MODULE:FUNCTION")
    parser.add_argument("config", help="a JSON file")
    given = parser.parse_args()
    module, _, name = given.function.partition(":")
    function = getattr(importlib.import_module(module), name)
    with open(given.config, encoding="utf-8") as stream:
        config = json.load(stream)
    reporter = Reporter()
    arguments = (config, reporter) if takes_reporter(function) else (config,)
    report(reporter, given.metric, function(*arguments))


def takes_reporter(function):
    """Tell whether a function takes a second argument."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind == inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return True
    return sum(parameter.kind in kinds for parameter in parameters) > 1


def report(reporter, metric, returned):
    """Report what a function has returned.

    Raises:
        TypeError: It is neither a number, nor a dict of numbers, nor None.
    """
    if returned is None:
        return
    if isinstance(returned, dict):
        reporter.log(metrics=returned)
    elif isinstance(returned, bool) or not (
        isinstance(returned, numbers.Number) or hasattr(returned, "item")
    ):
        raise TypeError(
            "the function returned %r; it must return a number (of %s), a dict of metrics, or None"
            % (type(returned).__name__, metric)
        )
    else:
        reporter.log(metrics={metric: returned})


if __name__ == "__main__":
    main()
