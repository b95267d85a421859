"""A scaling study as a page of Markdown: commands, environment, table, picture, conclusion."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.core.masking import hide_arguments
from sweep.tasks.side_runs import scaling_figures as figures

PACKAGES = (
    "torch",
    "jax",
    "tensorflow",
    "keras",
    "lightning",
    "transformers",
    "deepspeed",
    "numpy",
)


def describe_machine(host: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a report says of where a case was trained.

    Args:
        host: As ``machine.capture_host`` returns it.
        environment: As ``capture_environment``, with what ``capture_gpus`` returns.
    """
    names = ("runtime", "image", "gpus", "driver", "cuda", "python")
    packages = environment.get("packages") or {}
    return {
        **{name: host.get(name) for name in ("host", "cpu", "cpus", "kernel")},
        **{name: environment[name] for name in names if environment.get(name)},
        "packages": {name: packages[name] for name in PACKAGES if name in packages},
    }


def markdown(report: Mapping[str, Any], picture: str) -> str:
    """Return the page.

    Args:
        report: As ``scaling.run_all`` yields it, with ``called``, ``command`` and ``code``.
        picture: Name of the picture beside it; "" where there is none.
    """
    rows, unit = report["rows"], report["unit"]
    values = ", ".join(_values(report["params"]))
    kept = "the same batch for each process" if report["mode"] == "weak" else "the same batch"
    lines = [
        f"# {_plain(report['study'])}: {report['mode']} scaling",
        "",
        f"One training for each number of {figures.plural(unit)}, {kept}, {report['repeats']} "
        f"time{'s' if report['repeats'] > 1 else ''} each; {report['made']}.",
        "",
        "## Commands",
        "",
        *_block([report["called"], report["command"]]),
        "",
        *([f"Values: {values}.", ""] if values else []),
        "## Environment",
        "",
        *(f"- {line}" for line in _environment(report)),
        "",
        "## Result",
        "",
        *_table(figures.cells(rows)),
        "",
        *_failures(rows),
        *([f"![Speed and shares of the time]({picture})", ""] if picture else []),
        "## Conclusion",
        "",
        " ".join(part for part in (report["bottleneck"], report["repeated"]) if part),
    ]
    return "\n".join(lines) + "\n"


def _environment(report: Mapping[str, Any]) -> list[str]:
    """Return lines on code and machines, one for all cases that ran on machines alike."""
    code = report["code"]
    lines = []
    if code.get("commit"):
        changed = " with uncommitted changes" if code.get("dirty") else ""
        lines.append(f"code: commit `{code['commit'][:12]}`{changed}")
    else:
        lines.append("code: in no git repository")
    alike: dict[str, list[str]] = {}
    for row in report["rows"]:
        alike.setdefault(_machine(row.get("machine") or {}), []).append(str(row["ranks"]))
    for machine, ranks in alike.items():
        whose = "" if len(alike) == 1 else f"{figures.plural(report['unit'])} {', '.join(ranks)}: "
        lines.append(whose + machine)
    return lines


def _machine(found: Mapping[str, Any]) -> str:
    if not found:
        return "machine not known: its task gave no answer"
    gpus = found.get("gpus") or []
    parts = [f"{found['cpus']} CPUs, {_plain(str(found['cpu']))}"]
    for model in dict.fromkeys(gpus):
        parts.append(f"{gpus.count(model)} × {_plain(str(model))}")
    parts += [f"{name} {found[name]}" for name in ("driver", "cuda", "python") if found.get(name)]
    parts += [f"{name} {version}" for name, version in found["packages"].items()]
    if found.get("image"):
        parts.append(f"{found.get('runtime')} `{found['image']}`")
    return "; ".join(parts) + f" (host {found['host']}, kernel {found['kernel']})"


def _failures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for row in rows:
        for reason in dict.fromkeys(row["reasons"]):
            count = f"{row['reasons'].count(reason)} of {row['runs']}"
            lines.append(f"- {row['ranks']}: {count} failed: {_plain(reason)}")
    return [*lines, ""] if lines else []


def _table(lines: Sequence[Sequence[str]]) -> list[str]:
    head, *body = lines
    return [_row(head), _row(["---:"] * len(head)), *map(_row, body)]


def _row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _block(lines: Sequence[str]) -> list[str]:
    """Return indented code: no text of a command can end it."""
    return [f"    {part}" for line in lines for part in line.splitlines()]


def _values(params: Mapping[str, Any]) -> list[str]:
    given = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in params.items()]
    return ["`" + one.replace("`", "'").replace("\n", " ") + "`" for one in hide_arguments(given)]


def _plain(text: str) -> str:
    """Return a text in one line in which nothing is markup."""
    line = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in line)
