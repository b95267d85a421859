"""The metrics that a user's script prints or reports, guessed from its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from sweep.studyfile.starter import callbacks
from sweep.studyfile.starter.logged import find_logged

# A number as programs print it.
NUMBER = r"([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf))"
# Words that say whether more is better, and what is measured; the earlier, the more likely meant.
_MORE = re.compile(
    r"acc|accuracy|f1|auc|auroc|iou|miou|map|bleu|rouge|dice|r2|score|reward|return|precision|"
    r"recall|psnr|ssim|top1"
)
_LESS = re.compile(
    r"loss|error|err|l1|l2|m?logloss|merror|rmsle|mape|ppl|perplexity|mse|rmse|mae|wer|cer|nll|fid|bpc|bpb"
)
_NO_METRIC = re.compile(r"(mixed|float|half)[ _-]precision|precision[ _-](type|mode)")
# A message as often as a metric: a metric where it is formatted as a number.
_MESSAGE = re.compile(r"errors?|err", re.IGNORECASE)
_NUMBER_FORMAT = re.compile(r"%[-+ 0-9.]*[fge]|\{[^{}]*:[^{}]*[fge]\}")
_HELD_OUT = re.compile(r"val|valid|validation|dev|eval")
_TEST = re.compile(r"test")
# Lines that begin so are read only where the pattern names the word.
_SUMS_UP = re.compile(r"[\W_]*(best|final|test)", re.IGNORECASE)
_TRAIN = re.compile(r"train|training")
_LABEL = re.compile(
    r"((?:(?:val|valid|validation|dev|eval|test|train|training|best|average|avg|mean) )?"
    r"[A-Za-z][\w/.@-]*)\s*(?:[=:]\s*|\s)$",
    re.IGNORECASE,
)
_INLINE = re.compile(
    r"((?:(?:val|valid|validation|dev|eval|test|train|training|best|average|avg|mean) )?"
    r"[A-Za-z][\w/.@-]*)(?:\s*[=:]\s*(?:%[-+ 0-9.]*[fgeds]|\{[^{}]*\})"
    # Behind a space alone, what is formatted as a number: valid loss {:5.2f}
    r"|\s+(?:%[-+ 0-9.]*[fge]|\{[^{}]*:[^{}]*[fge]\}))",
    re.IGNORECASE,
)

# The same before a value of bash or R: loss=$loss, "loss:", x, loss=%f
_SHOWN = re.compile(
    r"((?:(?:val|valid|validation|dev|eval|test|train|training|best|average|avg|mean) )?"
    r"[A-Za-z][\w/.@-]*)\s*[=:]\s*(?:%[-+ 0-9.]*[fgeds]|\$\{?[A-Za-z_]|\$\(|[\"']\s*,)",
    re.IGNORECASE,
)
_SHOWS = re.compile(r"\b(echo|printf|cat|print|message|sprintf|paste0?|glue|writeLines)\b")
_JOURNAL_LINE = re.compile(r"metrics\\?[\"']\s*:\s*\{([^{}\n]*(?:\$\{\w+\}[^{}\n]*)*)\}")


@dataclass(frozen=True)
class Metric:
    """A metric that a script is likely to give.

    Attributes:
        name: For the study file.
        pattern: Regular expression that finds it in the output; None when it is reported.
        logged: Who gets it, where the script neither prints nor reports it; "" else.
    """

    name: str
    pattern: str | None = None
    logged: str = ""

    @property
    def direction(self) -> str | None:
        """ "maximize" or "minimize", or None where the name does not tell."""
        words = set(re.split(r"[^a-z0-9]+", self.name.lower()))
        if _NO_METRIC.fullmatch(self.name.lower()):
            return None
        for kind, direction in ((_LESS, "minimize"), (_MORE, "maximize")):
            if any(kind.fullmatch(word) for word in words):
                return direction
        return None

    @property
    def is_test(self) -> bool:
        """Whether it is measured on what a search must not see."""
        words = re.split(r"[^a-z0-9]+", self.name.lower())
        of_test = self.pattern is not None and self.pattern.lower().startswith("test")
        of_other = {"val", "valid", "validation", "dev", "eval"} & set(words)
        return words[0].startswith("test") or "test" in words or (of_test and not of_other)


def doubt_direction(name: str, direction: str) -> str:
    """Return a sentence where a metric's name says the other direction; "" else."""
    usual = Metric(name).direction
    if usual in (None, direction):
        return ""
    better = "less" if usual == "minimize" else "more"
    return f"{direction} {name}: by its name {better} of it is better; check the direction"


def find_metrics(tree: ast.AST, source: str) -> list[Metric]:
    """Return the metrics that a script reports or prints, the likeliest objective first."""
    reported = list(_reported(tree)) if "sweep.report" in source else []
    reported += [Metric(name) for name in callbacks.reported(tree)]
    found = reported or [*_printed(tree), *_logged(tree, source, is_printed=True)]
    if not any(metric.direction for metric in found):
        found = list(_logged(tree, source, is_printed=False))
    unique = {metric.name: metric for metric in reversed(found)}
    ordered = [unique[name] for name in dict.fromkeys(metric.name for metric in found)]
    return sorted((metric for metric in ordered if metric.direction), key=_rank)


def find_in_text(text: str) -> list[Metric]:
    """Return the metrics that a script in another language reports or prints.

    Reported is what it writes as sweep's lines: {"step": 3, "metrics": {"loss": 0.1}}.
    """
    found = [
        Metric(name)
        for inside in _JOURNAL_LINE.findall(text)
        for name in re.findall(r"\\?[\"']([\w/.@-]+)\\?[\"']\s*:", inside)
    ]
    if not found:
        found = [
            _metric(match[1], re.split(r"[\"']", line[: match.start()])[-1])
            for line in text.splitlines()
            if _SHOWS.search(line)
            for match in _SHOWN.finditer(line)
        ]
    unique = {metric.name: metric for metric in reversed(found)}
    ordered = [unique[name] for name in dict.fromkeys(metric.name for metric in found)]
    return sorted((metric for metric in ordered if metric.direction), key=_rank)


def _logged(tree: ast.AST, source: str, *, is_printed: bool) -> Iterator[Metric]:
    """Yield what goes to a framework or a logger: with the pattern of what that prints."""
    for one in find_logged(tree, source):
        if one.is_printed == is_printed:
            # Some of them write their numbers as texts: 'eval_loss': '0.7286'.
            pattern = rf"\b{re.escape(one.name)}['\"]?\s*[:=]\s*['\"]?{NUMBER}"
            yield Metric(one.name, pattern, "" if is_printed else one.how)


def _rank(metric: Metric) -> tuple[float, int]:
    words = re.split(r"[^a-z0-9]+", metric.name.lower())

    def has(kind: re.Pattern[str]) -> bool:
        return any(kind.fullmatch(word) for word in words)

    part = 0.0 if has(_HELD_OUT) else 3.0 if has(_TRAIN) else 1.0 if has(_TEST) else 2.0
    # The best so far, or at the end, tells a pruner less than the value of each step.
    part += 0.5 * ("best" in words)
    return part, 0 if metric.direction == "maximize" else 1


def _reported(tree: ast.AST) -> Iterator[Metric]:
    """Yield the names given to ``Reporter.log``."""
    for node in _calls(tree, "log"):
        for keyword in node.keywords:
            if keyword.arg == "metrics" and isinstance(keyword.value, ast.Dict):
                for key in keyword.value.keys:
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield Metric(key.value)
            elif keyword.arg and keyword.arg not in ("step", "metrics"):
                yield Metric(keyword.arg)


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            if (isinstance(called, ast.Attribute) and called.attr == name) or (
                isinstance(called, ast.Name) and called.id == name
            ):
                yield node


def _printed(tree: ast.AST) -> Iterator[Metric]:
    """Yield the names that stand before a value in the texts that a script makes.

    What it says of an exception is left out.
    """
    handled = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        for inner in ast.walk(node)
    }
    nodes = [node for node in ast.walk(tree) if id(node) not in handled]
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            first = node.values[0] if node.values else None
            head = str(first.value) if isinstance(first, ast.Constant) else ""
            for text, value in zip(node.values, node.values[1:], strict=False):
                if isinstance(text, ast.Constant) and isinstance(value, ast.FormattedValue):
                    is_number = value.format_spec is not None
                    yield from _labelled(str(text.value), head, is_number=is_number)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in inside
        ):
            for found in _INLINE.finditer(node.value):
                if not _MESSAGE.fullmatch(found[1]) or _NUMBER_FORMAT.search(found[0]):
                    yield _metric(found[1], node.value)
    for call in (call for call in _calls(tree, "print") if id(call) not in handled):
        for text, value in zip(call.args, call.args[1:], strict=False):
            is_value = not isinstance(value, ast.Constant | ast.JoinedStr)
            if is_value and isinstance(text, ast.Constant) and isinstance(text.value, str):
                # print puts a space between its arguments.
                first = call.args[0]
                head = str(first.value) if isinstance(first, ast.Constant) else ""
                yield from _labelled(f"{text.value} ", head)


def _labelled(text: str, head: str, *, is_number: bool = True) -> Iterator[Metric]:
    found = _LABEL.search(text)
    if found and (is_number or not _MESSAGE.fullmatch(found[1])):
        yield _metric(found[1], head)


def _metric(label: str, head: str) -> Metric:
    """Return the metric of a label.

    Args:
        head: How the line begins: a word for which it is skipped must stand in the pattern.
    """
    name = re.sub(r"[ ]+", "_", label.strip()).lower()
    pattern = rf"\b{re.escape(label).replace(chr(92) + ' ', ' ')}\s*[=:]?\s*{NUMBER}"
    sums_up = _SUMS_UP.match(head)
    if sums_up and sums_up[1].lower() not in label.lower():
        pattern = f"{sums_up[1]}.*{pattern}"
    return Metric(name, pattern)
