"""The rooms of the project: who may import whom, held by reading the imports.

``sweep`` is eleven packages, and imports go one way. A package imports what its row of ROOMS names,
and nothing else of sweep. CONTRIBUTING.md says why each exists.
"""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from sweep.core import executors
from tests.cluster import DAILY

ROOT = Path(__file__).parents[1]
COMMANDS = ("launch", "schema", "init")  # of those that import much, and of those that do not

ROOMS: dict[str, set[str]] = {
    "core": set(),
    "studyfile": {"core"},
    "schedulers": {"core"},
    "storage": {"core"},
    "training": {"core", "report"},
    "search": {"core", "storage"},
    "provenance": {"core", "training"},
    "control": {
        *("core", "report", "studyfile", "schedulers", "storage", "training"),
        *("search", "provenance"),
    },
    "results": {
        *("core", "studyfile", "schedulers", "storage", "training"),
        *("search", "provenance", "control"),
    },
    "tasks": {
        *("core", "studyfile", "schedulers", "storage", "training"),
        *("search", "provenance", "control", "results"),
    },
    "cli": {
        *("core", "studyfile", "schedulers", "storage", "training"),
        *("search", "provenance", "control", "results", "tasks"),
    },
}

# The files beside the packages: the public name, two ways to start, and the reporter.
TOP: dict[str, set[str]] = {
    "__init__": {
        "cli",
        "studyfile",
        "storage",
    },  # lazily: ``launch``, ``load``, ``Study``; ``storage``
    "__main__": {"cli"},
    "report": set(),
    "task": {"tasks"},
}

# The folder beside the reporter: it runs inside training, and is copied into images, as well.
BESIDE: dict[str, set[str]] = {"integrations": {"report"}}
# What its modules import: the framework they are named for, which is why one imports them.
INTEGRATIONS = {
    **{name: set() for name in ("__init__", "base", "child", "function", "tensorboard", "wandb")},
    **{name: set() for name in ("accelerate", "deepspeed")},  # they are handed the user's objects
    "dcp": {"torch"},
    "torch_profile": {"torch"},
    "lightning": {"lightning", "pytorch_lightning"},
    **{name: {name} for name in ("keras", "lightgbm", "transformers", "xgboost")},
    "orbax": {"jax", "orbax"},  # which saves what is jax's
}

# What the trainer may import besides itself and the standard library.
TRAINER_MAY = {"torch", "numpy", "sklearn", "PIL", "pyarrow", "sweep.report"}

# Only here may torch be imported: a sampler needs it, and a check asks whether it is there.
TORCH_MAY = {"sweep/search/propose.py", "sweep/search/samplers.py", "sweep/control/check/inside.py"}

# Modules of one name: the path says the rest, and the meaning is one. Besides, a command may be
# called as the one module that does its work.
SAME_NAME = {
    "report": "`sweep report` is what users type, `sweep.report` what their training imports",
    "scheduler": "core's base class, and in each scheduler's folder its implementation",
    "tensorboard": "its event files: read within training, written by the tracker",
}

# What users import: of one of these modules only, so that the names are the same in each.
PUBLIC = ("SweepCallback", "Epochs")

# Each takes from a tenth of a second to some seconds of CPU: a task whose design is fixed, and the
# command line where it only answers, do without them.
HEAVY = (
    *("optuna", "sqlalchemy", "alembic", "pandas", "numpy", "scipy", "torch"),
    *("matplotlib", "rich", "pyarrow", "vl_convert", "mlflow", "tensorboard", "wandb"),
    "jinja2",
)
# Modules of sweep that import a heavy one at their top; others import these where they use them.
HEAVY_MODULES = {
    "sweep.cli.waiting",
    "sweep.provenance.dvc",  # a reader of YAML, which a task does without
    "sweep.results.frames",
    "sweep.search.bring_in",
    "sweep.search.pruning",
    "sweep.search.risk",
    "sweep.search.view",
    "sweep.storage.optuna_storage",
    "sweep.storage.optuna_studies",
    "sweep.tasks.sharding.array_rows",
    "sweep.tasks.sharding.table_rows",
    "sweep.tasks.tracking.mlflow",
    "sweep.tasks.tracking.tensorboard",
    "sweep.tasks.tracking.wandb_runs",
}
# What is SQL, in capitals as ours is written; what runs one; and what brings it.
SQL = (
    r"\b(SELECT|INSERT INTO|DELETE FROM|UPDATE \w+|CREATE TABLE|ORDER BY|FOR SHARE)\b"
    r"|\bWHERE \S+ (=|<|>|IN\b|LIKE\b)|\bUSING \(|pg_\w*(lock|sleep)"
)
RUN_SQL = {"execute", "execute_prepared", "executemany", "cursor", "_rows"}
SQL_DRIVERS = {"psycopg2", "psycopg", "sqlalchemy", "alembic"}
# There only on some machines, or only for whoever asked for it.
OPTIONAL = ("pynvml", "ctypes", "fcntl", "PIL")
MOST_INNER_IMPORTS = 60

# How a command could leave, or swallow what it is to say, beside the one place that catches.
WAYS_ROUND = ("sys.exit", "os._exit", "SystemExit", "exceptions.Exit", "UsageError", "suppress(")

SKIPS = ("tests/needs.py", "tests/run_report.py", "tests/frameworks/scene.py")
LINES = 500  # as the formatter lays them out
LONGER = {"sweep/report.py": "one file, which is copied into images and beside scripts"}

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
    """Return the room of a module of sweep: its package, or the name of a file beside those."""
    return path.relative_to(ROOT / "sweep").with_suffix("").parts[0]


@cache
def parsed(path: Path) -> ast.Module:
    """Return a module's syntax tree, read once for all tests."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> list[tuple[str, int]]:
    """Return (dotted name, line) of each import, also those inside functions, made absolute."""
    return list(find_imports(path))


def find_imports(path: Path) -> Iterator[tuple[str, int]]:
    """Yield (dotted name, line) of each import, also those inside functions, made absolute."""
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    for node in ast.walk(parsed(path)):
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


def module_names() -> dict[str, Path]:
    """Return the modules of sweep by their dotted names."""
    found = {}
    for path in modules("sweep"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def test_every_module_is_in_a_room() -> None:
    """Eleven packages; the four files of TOP and the integrations beside them."""
    rooms = {room_of(path) for path in modules("sweep")}
    assert rooms == {*ROOMS, *TOP, *BESIDE}
    files = {path.stem for path in (ROOT / "sweep").glob("*.py")}
    assert files == set(TOP)
    assert len(ROOMS) == 11


@pytest.mark.parametrize("room", [*ROOMS, *TOP, *BESIDE])
def test_a_room_imports_what_its_row_names(room: str) -> None:
    """Also inside functions, and for type checkers."""
    may = {**ROOMS, **TOP, **BESIDE}[room]
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {other}"
        for path in modules("sweep")
        if room_of(path) == room
        for other, line in inner_imports(path)
        if other not in may
    ]
    assert wrong == []


def test_core_stands_above_this_machine() -> None:
    """Within core, ``system`` (this machine) uses the values, which know nothing of it."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules("sweep/core")
        if "system" not in path.parts
        for name, line in imports(path)
        if name.startswith("sweep.core.system")
    ]
    assert wrong == []


def test_no_circle() -> None:
    """No module imports itself by way of others, also not within a room or inside a function."""
    known = module_names()
    arrows: dict[str, set[str]] = {}
    for name, path in known.items():
        arrows[name] = set()
        for target, _ in imports(path):
            home = target if target in known else target.rpartition(".")[0]
            if home in known and home != name:
                arrows[name].add(home)
    # What has no arrow to what is left cannot be in a circle.
    left = dict(arrows)
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    assert sorted(left) == []


def test_one_place_catches() -> None:
    """What ended a command is caught, said and given its exit code once: in ``sweep.cli``.

    Ctrl-C, beside what goes on without the user, becomes an error that says so (``leaving``); a
    command that failed without an error returns its code.
    """
    may = {("sweep/cli/__init__.py", "run_command"), ("sweep/cli/common.py", "leaving")}
    catching, leaving = set(), []
    for path in modules("sweep/cli"):
        name = str(path.relative_to(ROOT))
        tree = parsed(path)
        for function in functions(tree):
            handlers = [node for node in ast.walk(function) if isinstance(node, ast.ExceptHandler)]
            catching |= {(name, function.name)} if handlers else set()
        text = path.read_text(encoding="utf-8")
        leaving += [(name, way) for way in WAYS_ROUND if way in text]
    assert catching == may
    assert leaving == [
        ("sweep/cli/__init__.py", "sys.exit"),
        ("sweep/cli/__init__.py", "SystemExit"),
    ]


def test_one_name_one_meaning() -> None:
    """No two classes of sweep have one name; modules and packages do only where SAME_NAME says why.

    A reader who meets `Found` or `record` elsewhere would have to ask which one.
    """
    classes, names = defaultdict(list), defaultdict(list)
    for path in modules("sweep"):
        where = path.relative_to(ROOT)
        names[where.parent.name if path.stem == "__init__" else path.stem].append(where)
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(str(where))
    assert all(classes.pop(name) for name in PUBLIC)
    assert {name: found for name, found in classes.items() if len(found) > 1} == {}
    several = {name: found for name, found in names.items() if len(found) > 1}
    assert set(SAME_NAME) <= set(several), "Take these out of SAME_NAME: one module has them now"
    wrong = {}
    for name, found in several.items():
        commands = [path for path in found if path.parts[:2] == ("sweep", "cli")]
        if name not in SAME_NAME and (len(commands), len(found)) != (1, 2):
            wrong[name] = [str(path) for path in found]
    assert wrong == {}


def asks_which_scheduler(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that find out which scheduler there is instead of what it can do."""
    for node in ast.walk(tree):
        parts: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("hasattr", "getattr", "isinstance"):
                parts = list(node.args[:1]) + [a for a in node.args[1:] if "Scheduler" in names(a)]
        elif isinstance(node, ast.match_case):
            parts = [node.pattern]
        for part in parts:
            values = {n.value for n in ast.walk(part) if isinstance(n, ast.Constant)}
            asked = {n.attr for n in ast.walk(part) if isinstance(n, ast.Attribute)}
            of_scheduler = re.search(r"schedule|executors\.", ast.unparse(part))
            named = of_scheduler and ("name" in asked or isinstance(node, ast.Call))
            if values & set(executors.names()) or "executor" in asked or named:
                yield getattr(part, "lineno", 0)


def names(node: ast.AST) -> str:
    """Return an expression's text."""
    return ast.unparse(node)


# The registry, and the base class, which tells whether a study or a wave is its own.
SCHEDULERS_NAMES = {"sweep/core/executors.py", "sweep/core/scheduler.py"}


def test_only_a_scheduler_knows_which_one_it_is() -> None:
    """All others ask what it can do; no folder of one is imported elsewhere."""
    wrong = []
    for path in modules("sweep"):
        name = path.relative_to(ROOT)
        if room_of(path) == "schedulers" or str(name) in SCHEDULERS_NAMES:
            continue
        found = asks_which_scheduler(parsed(path))
        wrong += [f"{name}:{line} asks which one it is" for line in found]
        wrong += [
            f"{name}:{line} imports {target}"
            for target, line in imports(path)
            if re.match(r"sweep\.schedulers\.(slurm|local)\b", target)
        ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ('study.executor == "x"', True),
        ('schedule.name != "x"', True),
        ('what == "slurm"', True),
        ('what in ("local", "x")', True),
        ('hasattr(schedule, "energy")', True),
        ('getattr(self.schedule, "energy", None)', True),
        ("isinstance(schedule, SlurmScheduler)", True),
        ('match what:\n    case "slurm":\n        pass', True),
        ("schedule.shares_this_machine and wave.executor", False),
        ('getattr(module, "name")', False),
        ('schedule.settle_s > 0.0 and path == "x"', False),
    ],
)
def test_the_search_for_such_questions_finds_them(text: str, asks: bool) -> None:
    """Whatever they look like."""
    assert bool(list(asks_which_scheduler(ast.parse(text)))) == asks


def test_every_process_knows_the_schedulers() -> None:
    """Whichever module it starts with; the command line has them with each of its commands."""
    starts = [
        *(
            "import sweep.task",
            "import sweep.schedulers.local.runner",
            "import sweep.results.frames",
        ),
        "import sweep.tasks.tracking.feeder",
        *(f"import sweep.control.{one}" for one in ("launch", "check.quick", "open_study")),
        *(
            f"from sweep.cli import main_group as m; m.get_command(None, {name!r})"
            for name in COMMANDS
        ),
    ]
    ask = "from sweep.core import executors; print(*executors.names())"
    said = {
        start: subprocess.run(
            [sys.executable, "-c", f"{start}\n{ask}"], cwd=ROOT, capture_output=True, text=True
        ).stdout
        for start in starts
    }
    assert {start for start, text in said.items() if text != "slurm local\n"} == set()


# The public names that are found only when they are asked for.
LAZY = {"sweep/__init__.py", "sweep/storage/__init__.py"}


def test_no_module_is_a_facade_or_patched() -> None:
    """Libraries are imported as they are, and names from where they are defined."""
    lazy, patched = set(), []
    for path in modules("sweep"):
        name = str(path.relative_to(ROOT))
        tree = parsed(path)
        if any(getattr(node, "name", "") == "__getattr__" for node in tree.body):
            lazy.add(name)
        changes = [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.Delete)]
        patched += [
            f"{name}:{node.lineno}"
            for node in changes
            if any(ast.unparse(target).startswith("sys.modules[") for target in node.targets)
        ]
    assert lazy == LAZY
    assert patched == []


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
    later = ("sweep.cli", "sweep.studyfile", "sweep.storage")  # when they are asked for
    outer = [n for n, _ in imports(ROOT / "sweep" / "__init__.py") if not n.startswith(later)]
    for_types = {"os", "typing.Any", "collections.abc.Callable", "collections.abc.Mapping"}
    assert {*outer} - for_types == {"__future__.annotations"}


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
        tree = parsed(path)
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


@cache
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
    [
        ("report.py", set()),
        ("provenance/installed.py", set()),
        ("control/check/inside.py", {"torch", "sweep"}),
        *((f"integrations/{name}.py", tops) for name, tops in INTEGRATIONS.items()),
    ],
)
def test_what_runs_in_images_is_one_old_python_file(file: str, tries: set[str]) -> None:
    """What runs in any image: standard library, Python 3.8's grammar.

    The check's part tries to import torch and the reporter, and says where it cannot. An
    integration imports the reporter, its siblings and its framework.
    """
    path = ROOT / "sweep" / file
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    found = [name for name, _ in imports(path)]
    if room_of(path) in BESIDE:
        found = [name for name in found if not name.startswith(("sweep.report", "sweep.integr"))]
        assert {one.stem for one in modules(f"sweep/{room_of(path)}")} == set(INTEGRATIONS)
    tops = {name.split(".")[0] for name in found}
    assert sorted(tops - sys.stdlib_module_names) == sorted(tries)


def is_sql(node: ast.AST) -> bool:
    """Tell whether a node is a text with SQL in it, a call that runs one, or a part of one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.search(SQL, node.value) is not None
    return isinstance(node, ast.Attribute) and node.attr in RUN_SQL


def test_sql_lies_in_storage_alone() -> None:
    """Elsewhere is no statement, nothing runs one, and no driver is imported."""
    found = []
    for path in modules("sweep"):
        if room_of(path) == "storage":
            continue
        lines = {n.lineno for n in ast.walk(parsed(path)) if is_sql(n)}  # type: ignore[attr-defined]
        lines |= {line for name, line in imports(path) if name.split(".")[0] in SQL_DRIVERS}
        found += [f"{path.relative_to(ROOT)}:{line}" for line in sorted(lines)]
    assert found == []


def test_keys_of_attributes_are_spelt_out_once() -> None:
    """Which things of ours lie in Optuna's tables: ``core/attributes.py`` lists them."""
    home = ROOT / "sweep/core/attributes.py"
    keys = [
        node.value.value
        for node in ast.parse(home.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    ]
    assert len(keys) == len(set(keys)) > 15
    optunas = {key for key in keys if not key.startswith("sweep:")}
    assert optunas == {"study:metric_names", "constraints", "fixed_params"}
    spelt_out = re.compile(rf"\bsweep:[a-z]|\bstudy:[a-z]|'({'|'.join(sorted(optunas))})'")
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.value[:60]}"
        for path in modules("sweep")
        if path != home
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if spelt_out.search(node.value)
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "db.execute(sql)",
        "run = db.execute_prepared",
        "self._rows(PAUSED)",
        "connection.cursor()",
        "KNOWN = 'SELECT study_name FROM studies ORDER BY 1'",
        "MORE = f'{start} UPDATE trials SET state = {state}'",
        "LATER = 'INSERT INTO trials (study_id) VALUES (1)'",
        "GONE = f'DELETE FROM {table} WHERE study_id = 1'",
        "PART = 'WHERE t.study_id = %s AND t.number = %s'",
        "PARTS = ' JOIN trial_values v USING (trial_id) '",
    ],
)
def test_sql_is_recognised(code: str) -> None:
    assert any(is_sql(node) for node in ast.walk(ast.parse(code)))


def test_torch_is_imported_by_its_sampler_only() -> None:
    """A login node needs no torch."""
    found = {
        str(path.relative_to(ROOT))
        for path in modules("sweep")
        if room_of(path) not in BESIDE
        for name, _ in imports(path)
        if name.split(".")[0] == "torch"
    }
    assert found <= TORCH_MAY


@pytest.mark.parametrize(
    "module",
    ["sweep.task", "sweep.tasks.pull", "sweep.report", "sweep.integrations.base", "sweep.cli"],
)
def test_starting_imports_nothing_heavy(module: str) -> None:
    """A task and the command line import heavy packages only when a step needs them."""
    allowed = {"click"} if module == "sweep.cli" else set()
    code = f"import sys, {module}; print(*sorted(set(m.split('.')[0] for m in sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert sorted((set(done.stdout.split()) & set(HEAVY)) - allowed) == []


def test_imports_stand_at_the_top() -> None:
    """Inside functions there are only heavy libraries, modules that bring one, and optional ones.

    ``report.py`` and what runs in images import what may be missing there where they use it.
    """
    alone = {"sweep/report.py", "sweep/control/check/inside.py", "sweep/provenance/installed.py"}
    count, wrong = 0, []
    for path in modules("sweep"):
        name = str(path.relative_to(ROOT))
        for function in ast.walk(parsed(path)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    asked = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    base = node.module or ""
                    asked = [base, *(f"{base}.{alias.name}" for alias in node.names)]
                else:
                    continue
                count += 1
                tops = {one.split(".")[0] for one in asked}
                may = tops & {*HEAVY, *OPTIONAL} or set(asked) & HEAVY_MODULES
                if not may and name not in {*alone, "sweep/__init__.py"}:
                    wrong.append(f"{name}:{node.lineno} {asked[0]}")
    assert wrong == []
    assert count <= MOST_INNER_IMPORTS


def test_the_cluster_tests_of_every_day_exist() -> None:
    """What `make test` is to run of them is named by hand."""
    for file, names in DAILY.items():
        text = (ROOT / "tests/cluster" / file).read_text(encoding="utf-8")
        lost = [name for name in names if f"def {name.partition('[')[0]}(" not in text]
        assert lost == [], file


def test_tests_wait_for_events_and_skip_by_their_needs() -> None:
    """How long something takes says how busy a machine is (see ``tests.waiting``); and only what
    ``tests.needs`` skips is turned into a failure by SWEEP_TEST_REQUIRE."""
    found = []
    for path in modules("tests"):
        name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        if not re.search(r"\(\) - \w+|\.skip", text):
            continue
        for node in ast.walk(ast.parse(text)):
            compared = ast.unparse(node) if isinstance(node, ast.Assert) else ""
            if re.search(r"\b(monotonic|perf_counter|time)\(\) - \w+ <", compared):
                found.append(f"{name}:{node.lineno} compares seconds")
            skips = isinstance(node, ast.Attribute) and node.attr in ("skip", "skipif")
            if skips and name not in SKIPS:
                found.append(f"{name}:{node.lineno} skips past tests.needs")
    assert found == []


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


def test_digits_that_are_no_number_are_not_taken_for_one() -> None:
    """``str.isdigit`` takes ``²``, of which ``int`` makes no number: ``isdecimal``, or numbers."""
    paths = [path for package in ("sweep", "trainer") for path in modules(package)]
    found = {path.name for path in paths if ".isdigit()" in path.read_text(encoding="utf-8")}
    assert found == {"whole_files.py"}  # of bytes, for which it means 0 to 9


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
