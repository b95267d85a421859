"""The rooms of the project: who may import whom, held by reading the imports.

A module of ``sweep`` imports only from levels below its own, or from rooms earlier in its own
level. A package (``sweep.storage``) is one room. A new module gets its place in LEVELS.
"""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LEVELS: list[list[str]] = [
    # 0: values. They know nothing of the outside.
    [
        "plain",
        "errors",
        "placeholders",
        "quantise",
        "yaml_text",
        "hydra_text",
        "pareto",
        "confidence",
        "verdict",
        "space",
        "study",
        "feasibility",
        "trial",
        "paths",
        "settings",
        "studyfile",
        "rank_labels",
    ],
    # 1: edges. Each owns one thing outside.
    [
        "report",
        "lean",
        "process",
        "forked",
        "oom",
        "postgres",
        "storage",
        "journal",
        "service",
        "access",
        "scheduler",
        "slurm_text",
        "local_history",
        "local_gpus",
        "energy",
        "local_job",
        "local_runner",
        "local",
        "training_env",
        "command",
        "images",
        "template",
        "script",
        "slurm_ask",
        "slurm_site",
        "slurm_jobs",
        "slurm",
        "executors",
        "script_flags",
        "script_metrics",
        "installed",
        "packages",
        "code_tree",
        "frozen",
        "code_record",
        "data_record",
        "machine",
        "differences",
        "provenance",
        "within",
        "manifest",
        "origin",
        "tracking",
    ],
    # 2: verbs.
    [
        "ending",
        "supervise",
        "diagnosis",
        "settling",
        "reconcile",
        "nodes",
        "arrays",
        "waves",
        "finaliser",
        "lookout",
        "task_energy",
        "build",
        "context",
        "check",
        "opened",
        "startable",
        "launch",
        "slots",
        "recorder",
        "worker",
        "side_run",
        "rerun",
        "judging",
        "trial_command",
        "confirm",
        "compare",
        "scaling_figures",
        "scaling",
        "columns",
        "exports",
        "collect",
        "results",
        "plots",
        "rerun_plot",
        "reporting",
        "status",
        "screens",
        "live",
        "draft",
        "convert_wandb",
        "convert_hydra",
        "convert",
        "starter",
    ],
    # 3: where processes begin.
    ["crash", "task", "cli", "__main__"],
]

ORDER = {
    room: (level, place) for level, rooms in enumerate(LEVELS) for place, room in enumerate(rooms)
}

# What the trainer may import besides itself and the standard library.
TRAINER_MAY = {"torch", "numpy", "sklearn", "sweep.report"}

# Only here may torch be imported: a sampler needs it, and a check asks whether it is there.
TORCH_MAY = {"sweep/storage/sampling.py", "sweep/storage/samplers.py", "sweep/check/inside.py"}

# A task that finds nothing to pull ends in a tenth of a second, so these come later.
HEAVY = (
    "optuna",
    "sqlalchemy",
    "pandas",
    "rich",
    "ruamel",
    "click",
    "torch",
    "numpy",
    "jinja2",
    "alembic",
    "matplotlib",
    "scipy",
)

LINES = 500  # as the formatter lays them out
LONGER = {
    "sweep/worker.py": "one array task from its first pull to its last",
    "sweep/local_runner.py": "one loop over one array: its states refer to each other",
}

# Folders and files that are handed out: no word of where they were written.
SHIPPED = (
    "sweep",
    "trainer",
    "templates",
    "studies",
    "docs",
    "benchmarks",
    ".ci",
    "Makefile",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "setup.cfg",
    "pyproject.toml",
)


def modules(package: str) -> list[Path]:
    """Return a package's modules."""
    return sorted((ROOT / package).rglob("*.py"))


def room_of(path: Path) -> str:
    """Return the room of a module of sweep; empty for the package itself."""
    parts = path.relative_to(ROOT / "sweep").with_suffix("").parts
    return "" if parts == ("__init__",) else parts[0]


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Yield (dotted name, line) of each import, also those inside functions, made absolute."""
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno


def inner_imports(path: Path) -> Iterator[tuple[str, int]]:
    """Yield (room, line) of each import from another room of sweep."""
    for name, line in imports(path):
        parts = name.split(".")
        if parts[0] == "sweep" and len(parts) > 1 and parts[1] != room_of(path):
            yield parts[1], line


def test_every_module_has_its_place() -> None:
    """Each room is in LEVELS once, and LEVELS names no room that is gone."""
    rooms = {room_of(path) for path in modules("sweep")} - {""}
    listed = [room for level in LEVELS for room in level]
    assert sorted(rooms - set(listed)) == [], (
        "Put these modules into LEVELS of tests/test_architecture.py: the lowest level, and the "
        "earliest place, that their imports allow"
    )
    assert sorted(set(listed) - rooms) == [], "Take these out of LEVELS: they are gone"
    assert sorted(room for room in listed if listed.count(room) > 1) == []


@pytest.mark.parametrize("room", [room for level in LEVELS for room in level])
def test_imports_point_downwards(room: str) -> None:
    """A room imports from lower levels, or from rooms earlier in its own."""
    wrong = []
    for path in modules("sweep"):
        if room_of(path) != room:
            continue
        for other, line in inner_imports(path):
            if other in ORDER and ORDER[other] >= ORDER[room]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {other}")
    assert wrong == []


def test_every_package_is_installed() -> None:
    """setup.cfg lists each folder with modules; `find:` cannot, as templates/ lies elsewhere."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = config["options"]["packages"].split()
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in modules("sweep")}
    mapped = dict(re.findall(r"^(\S+) = (\S+)$", config["options"]["package_dir"], re.MULTILINE))
    assert mapped == {"sweep.templates": "templates", "sweep.trainer": "trainer"}
    assert sorted(listed) == sorted({*folders, *mapped})


def test_the_package_itself_imports_nothing() -> None:
    """``import sweep`` costs nothing, and ``sweep.report`` alone can lie beside its __init__."""
    code = "import sys; before = set(sys.modules); import sweep; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) <= {"sweep", "__future__"}
    later = ("sweep.results", "sweep.storage")  # when they are asked for
    outer = [n for n, _ in imports(ROOT / "sweep" / "__init__.py") if not n.startswith(later)]
    assert outer == ["__future__.annotations", "os"]  # the latter for type checkers alone


def test_trainer_knows_only_the_reporter() -> None:
    """The trainer runs without sweep: torch, its data's packages, and the reporter."""
    wrong = []
    for path in modules("trainer"):
        for name, line in imports(path):
            top = name.split(".")[0]
            may = (
                top in sys.stdlib_module_names
                or top == "trainer"
                or any(name == allowed or name.startswith(allowed + ".") for allowed in TRAINER_MAY)
            )
            if not may:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert wrong == []


def test_trainer_runs_under_both_its_names() -> None:
    """It is ``trainer`` in a checkout and ``sweep.trainer`` in a wheel: it writes out neither."""
    wrong = []
    for path in modules("trainer"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        explained = {ast.get_docstring(node, clean=False) for node in [tree, *functions(tree)]}
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            text = node.value if isinstance(node, ast.Constant) else ""
            named = isinstance(text, str) and text not in explained and "-m trainer." in text
            if named or any(re.match(r"(sweep\.)?trainer\b", name) for name in names):
                wrong.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}")
    assert wrong == []


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """Return a module's functions and methods."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def test_sweep_never_imports_the_trainer() -> None:
    """sweep runs a command, whatever it is."""
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in modules("sweep")
        for name, line in imports(path)
        if re.match(r"(sweep\.)?trainer\b", name)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("file", "tries"),
    [("report.py", set()), ("installed.py", set()), ("check/inside.py", {"torch", "sweep"})],
)
def test_what_runs_in_images_is_one_old_python_file(file: str, tries: set[str]) -> None:
    """What runs in any image: standard library, Python 3.8's grammar.

    The check's part tries to import torch and the reporter, and says where it cannot.
    """
    path = ROOT / "sweep" / file
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    tops = {name.split(".")[0] for name, _ in imports(path)}
    assert sorted(tops - sys.stdlib_module_names) == sorted(tries)


def test_torch_is_imported_by_its_sampler_only() -> None:
    """A login node needs no torch."""
    found = {
        str(path.relative_to(ROOT))
        for path in modules("sweep")
        for name, _ in imports(path)
        if name.split(".")[0] == "torch"
    }
    assert found <= TORCH_MAY


@pytest.mark.parametrize("module", ["sweep.task", "sweep.worker", "sweep.report", "sweep.cli"])
def test_starting_imports_nothing_heavy(module: str) -> None:
    """A task and the command line import heavy packages only when a step needs them."""
    allowed = {"click"} if module == "sweep.cli" else set()
    code = f"import sys, {module}; print(*sorted(set(m.split('.')[0] for m in sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert sorted((set(done.stdout.split()) & set(HEAVY)) - allowed) == []


def test_modules_are_small() -> None:
    """A module has one job; one that is longer has a reason in LONGER."""
    long = {}
    for package in ("sweep", "trainer", "studies", "benchmarks"):
        for path in modules(package):
            count = len(path.read_text(encoding="utf-8").splitlines())
            if count > LINES:
                long[str(path.relative_to(ROOT))] = count
    assert {name: count for name, count in long.items() if name not in LONGER} == {}
    assert sorted(set(LONGER) - set(long)) == [], "Take these out of LONGER: they are short now"


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(?<!\w)shar" + r"ed/|/wor" + r"k/", "names a place that only its authors had"),
        (r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b", "is unfinished"),
    ],
)
def test_what_is_handed_out_is_finished(pattern: str, why: str) -> None:
    """No file says where it was written, or that something is left to do."""
    found = []
    for top in SHIPPED:
        start = ROOT / top
        paths = [start] if start.is_file() else sorted(start.rglob("*")) if start.is_dir() else []
        for path in paths:
            if not path.is_file() or "__pycache__" in path.parts or path.suffix in (".png", ".gz"):
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            for number, line in enumerate(text.splitlines(), 1):
                if re.search(pattern, line):
                    found.append(f"{path.relative_to(ROOT)}:{number} {why}: {line.strip()[:80]}")
    assert found == []


def test_extras_that_we_say_to_install_exist() -> None:
    """Messages name our distribution, not another one of the package index, and its extras."""
    declared = configparser.ConfigParser()
    declared.read(ROOT / "setup.cfg", encoding="utf-8")
    name, extras = declared["metadata"]["name"], declared["options.extras_require"]
    ours = {f"{name}[{extra}]" for extra in extras}
    texts = [
        path.read_text(encoding="utf-8")
        for package in ("sweep", "trainer")
        for path in modules(package)
    ]
    said = {found for text in texts for found in re.findall(r"pip install '([\w-]+\[\w+\])'", text)}
    assert said and said <= ours
