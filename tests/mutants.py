"""How strong the tests are: the number of assertions, and the share of mutants that they kill.

``--count`` counts assertions. Else one place of sweep at a time is changed, in a copy; the unit
tests that reach it should fail. A mutant is known by what it changes in which function, not by its
file and line: after modules have moved, ``--before FILE`` measures the same ones again. A unit test
lies in UNIT_TESTS, uses no fixture of SERVERS, and is not marked real; what it reaches in processes
that it starts is not seen.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import coverage
import pytest

from tests.processes import end_processes
from tests.run_report import read_state

ROOT = Path(__file__).parents[1]
UNIT_TESTS = ["tests"]
SERVERS = {"postgres_server", "slurm", "slurm_cgroup", "images", "sweep"}
BASELINE_S, PATIENCE_S = 1800.0, 60.0  # a mutant's tests have the latter and twice what all took
TOO_LONG = 124

FLIP = {ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn, ast.Lt: ast.GtE, ast.Gt: ast.LtE}
FLIP |= {other: one for one, other in FLIP.items()}
BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add}
ONLY = Path("../only.json")  # beside a copy: the tests to run
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Mutant(NamedTuple):
    """One change of one file; ``key`` stays the same when the function moves."""

    key: str
    file: str
    line: int
    lines: tuple[int, ...]  # a test that runs one of these may notice
    start: int  # bytes into the file
    end: int
    old: str
    new: str


def walk(node: Any, name: str, is_inside: bool, line: int) -> Iterator[tuple[Any, str, int]]:
    """Yield what stands in functions (but no type, default, pattern, message), where, its line."""
    is_for_types = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    if is_for_types or isinstance(node, (ast.arguments, ast.pattern, ast.JoinedStr)):
        return
    line = node.lineno if isinstance(node, ast.stmt) else line
    if is_inside:
        yield node, name, line
    parts = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.AnnAssign):
        parts = [node.value] if node.value else []
    elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        name, parts = f"{name}.{node.name}".strip("."), list(node.body)
        is_inside = is_inside or isinstance(node, FUNCTIONS)
    for part in parts:
        yield from walk(part, name, is_inside, line)


def propose(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield (operator, changed node) for each change of a node."""

    def change(**fields: Any) -> ast.AST:
        return type(node)(**{**dict(ast.iter_fields(node)), **fields})

    if isinstance(node, ast.Compare):
        for place, symbol in enumerate(node.ops):
            for name, table in (("flip", FLIP), ("boundary", BOUNDARY)):
                if other := table.get(type(symbol)):
                    ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                    yield f"{name} {place}", change(ops=ops)
    elif isinstance(node, ast.BoolOp):
        yield "and/or", change(op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in ARITHMETIC:
        yield "arithmetic", change(op=ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not", node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        is_truth = isinstance(node.value, bool)
        yield "constant", ast.Constant(not node.value if is_truth else node.value + 1)
    elif isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return None"):
        yield "return", ast.Return(ast.Constant(None))


def find_in_file(file: str, source: bytes) -> Iterator[Mutant]:
    """Yield the mutants of one file: changes within functions."""
    tree = ast.parse(source)
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    imported = {alias.asname or alias.name for node in imports for alias in node.names}
    names = sorted(filter(str.islower, imported), reverse=True)
    module = re.compile(rf"(?<![\w.])({'|'.join(names)})\.")
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def describe(text: str) -> str:
        """Drop what a move may change: the module before a name, the underscore of a private."""
        return re.sub(r"(?<!\w)_+(?=[A-Za-z])", "", module.sub("", text))

    seen: Counter[str] = Counter()
    for node, name, statement in walk(tree, "", False, 0):
        for operator, changed in propose(node):
            key = describe(f"{name} | {operator} | {ast.unparse(node)}")
            seen[key] += 1
            lines = (statement, *range(node.lineno, node.end_lineno + 1))
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            old, new = ast.unparse(node), ast.unparse(changed)
            new = new if isinstance(node, ast.stmt) else f"({new})"
            yield Mutant(f"{key} | {seen[key]}", file, node.lineno, lines, start, end, old, new)


def digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def find_mutants(root: Path) -> dict[str, Mutant]:
    """Return all mutants of sweep by their keys; without those that share one."""
    paths = (root / "sweep").rglob("*.py")
    found = [m for p in paths for m in find_in_file(str(p.relative_to(root)), p.read_bytes())]
    times = Counter(mutant.key for mutant in found)
    return {mutant.key: mutant for mutant in found if times[mutant.key] == 1}


def count_assertions(root: Path) -> dict[str, int]:
    """Count what the tests assert, as it stands in their text."""
    paths = (root / "tests").rglob("*.py")
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_bytes()))]
    calls = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
    counts = {
        "assert": sum(isinstance(node, ast.Assert) for node in nodes),
        "raises, warns": sum(name in ("pytest.raises", "pytest.warns") for name in calls),
        ".assert_*": sum(".assert_" in name for name in calls),
    }
    tests = sum(isinstance(node, FUNCTIONS) and node.name.startswith("test_") for node in nodes)
    return {"assertions": sum(counts.values()), **counts, "test functions": tests}


def pytest_collection_modifyitems(items: list[Any]) -> None:  # as a plugin, within the copy
    items[:] = [item for item in items if not SERVERS & set(item.fixturenames)]
    if ONLY.exists():
        names = set(json.loads(ONLY.read_text()))
        items[:] = [item for item in items if item.nodeid in names]


def pytest_runtest_logstart(nodeid: str) -> None:
    """Let coverage note what each test reaches; "" stands for the loading of modules."""
    if tracer := coverage.Coverage.current():
        tracer.switch_context(nodeid)


def copy_tree(root: Path, tree: Path) -> Path:
    """Copy what git knows, or would take, of a checkout, and this file."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (root / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, tree / name)
    shutil.copy2(__file__, tree / "tests" / "mutants.py")
    return tree


def run_tests(tree: Path, words: list[str], limit_s: float) -> tuple[int, str]:
    """Run pytest on a copy; return its exit code (or TOO_LONG) and its output."""
    command = [sys.executable, "-m", *words, "-q", "-p", "tests.mutants", "-m", "not real"]
    command.append(f"--basetemp={tree.parent}/tmp")
    env = {**os.environ, "PYTHONPATH": str(tree), "COVERAGE_CORE": "ctrace"}
    with (tree.parent / "log").open("w+", errors="replace") as log:
        try:
            done = subprocess.run(
                command, cwd=tree, env=env, stdout=log, stderr=log, timeout=limit_s
            )
            code = done.returncode
        except subprocess.TimeoutExpired:
            code = TOO_LONG
        end_processes(tree.parent)
        log.seek(0)
        return code, log.read()


def judge(tree: Path, mutant: Mutant, tests: list[str], limit_s: float) -> tuple[str, str]:
    """Run tests on a mutant, twice where they fail, lest it be by chance; return result and why."""
    path = tree / mutant.file
    (tree / ONLY).write_text(json.dumps(tests))
    files = sorted({test.partition("::")[0] for test in tests})
    whole, times = path.read_bytes(), path.stat()
    changed = whole[: mutant.start] + mutant.new.encode() + whole[mutant.end :]
    compile(changed, mutant.file, "exec")
    path.write_bytes(changed)
    # Python knows a compiled file's source by size and second: no two versions share the latter.
    os.utime(path, (times.st_atime, times.st_mtime + 1 + mutant.start))
    for _ in range(2):
        code, output = run_tests(tree, ["pytest", "-x", *files], limit_s)
        if code in (TOO_LONG, pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            break
    path.write_bytes(whole)
    os.utime(path, (times.st_atime, times.st_mtime))
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise RuntimeError(f"{mutant.key}: its tests are not found again:\n{output}")
    if code == pytest.ExitCode.OK:
        return "survived", "its tests pass"
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return "killed", failed[0].partition(" - ")[0] if failed else f"exit code {code}"


def measure(root: Path, tests: list[str], chosen: list[Mutant], jobs: int) -> list[dict[str, Any]]:
    """Say of each mutant whether the tests that reach it kill it."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as top, ThreadPoolExecutor(jobs) as pool:
        trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            trees.put(tree := copy_tree(root, Path(top).resolve() / f"{number:02}" / "tree"))
        started, file = time.monotonic(), f"{top}/reached"
        trace = ["coverage", "run", f"--data-file={file}", "--include=sweep/*", "-m", "pytest"]
        code, output = run_tests(tree, [*trace, *tests], BASELINE_S)
        if code != pytest.ExitCode.OK:
            sys.exit(f"{output}\nThe tests fail, or take too long, on {root} as it is")
        limit_s = PATIENCE_S + 2 * (time.monotonic() - started)
        data = coverage.CoverageData(file)
        data.read()
        reached = {m.file: data.contexts_by_lineno(str(tree / m.file)) for m in chosen}
        everything = sorted(data.measured_contexts() - {""})

        def judge_one(mutant: Mutant) -> dict[str, Any]:
            names = {test for line in mutant.lines for test in reached[mutant.file].get(line, ())}
            result, why = "survived", "no unit test reaches it"
            if names:  # what runs while modules are loaded concerns all tests
                tree = trees.get()
                result, why = judge(tree, mutant, everything if "" in names else [*names], limit_s)
                trees.put(tree)
            name = mutant.key.partition(" | ")[0]
            print(f"{result:8} {mutant.file}:{mutant.line} {name}: {mutant.old}  ->  {mutant.new}")
            print(f"         {why}", flush=True)
            return {**mutant._asdict(), "result": result, "why": why}

        return list(pool.map(judge_one, chosen))


def share(mutants: list[dict[str, Any]]) -> str:
    killed = sum(mutant["result"] == "killed" for mutant in mutants)
    return f"{killed} of {len(mutants)} killed"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", action="store_true", help="count the assertions, and no more")
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tests", nargs="+", default=UNIT_TESTS, help="folders of unit tests")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout to measure")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--before", type=Path, help="measure this file's mutants again, compare")
    asked = parser.parse_args()
    counts = count_assertions(asked.root)
    print(*(f"{number} {name}" for name, number in counts.items()), sep="\n")
    if asked.count:
        return
    before = json.loads(asked.before.read_text())["mutants"] if asked.before else []
    old = {mutant["key"]: mutant for mutant in before}
    found = find_mutants(asked.root)
    keys = sorted(found, key=lambda key: (key not in old, digest(asked.seed, key)))
    chosen = [found[key] for key in keys[: asked.number]]
    mutants = measure(asked.root, asked.tests, chosen, asked.jobs)
    print(f"{share(mutants)}, out of {len(found)} mutants")
    if asked.before:
        same = [mutant for mutant in mutants if mutant["key"] in old]
        then = share([old[mutant["key"]] for mutant in same])
        print(f"before: {share(before)}; of those found again: {then}, now {share(same)}")
        changed = [m for m in same if m["result"] != old[m["key"]]["result"]]
        print(*(f"{mutant['result']} only now: {mutant['key']}" for mutant in changed), sep="\n")
    if asked.json:
        state = {"seed": asked.seed, "tests": asked.tests, **read_state(asked.root)}
        figures = {**state, "counts": counts, "share": share(mutants), "mutants": mutants}
        asked.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
