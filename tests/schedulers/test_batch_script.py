"""The batch script: what stands in it, and what bash makes of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sweep.core.study import Slurm
from sweep.schedulers.slurm.batch_script import render
from tests.study_rows import make_study
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
HOSTILE = ["a space", "it's", 'a"quote', "$(touch owned)", "`id`", "semi;colon", "new\nline", "ä%"]


def run(script: str, folder: Path, *arguments: str, **environ: str) -> tuple[int, str]:
    """Run a batch script as Slurm would; return its exit code and what it printed."""
    path = folder / "task.sh"
    path.write_text(script)
    env = {"PATH": f"{folder}/bin:/usr/bin:/bin", "SLURM_JOB_ID": "70", **environ}
    done = subprocess.run(
        ["bash", str(path), *arguments],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout


def test_the_script_of_a_study() -> None:
    """The same for all tasks: the user's lines, then variables, then sweep itself by ``exec``."""
    study = make_study(slurm=Slurm(setup=("module load cuda", "ulimit -c 0")))
    text = render(study, ["/opt/py/bin/python", "-m", "sweep.task", "/r/digits"], {"A": "1"})
    lines = text.splitlines()
    assert lines[0] == "#!/bin/bash"
    assert not any(line.startswith("#SBATCH") for line in lines)
    ours = [
        "module load cuda",
        "ulimit -c 0",
        "export A=1",
        'exec /opt/py/bin/python -m sweep.task /r/digits "$@"',
    ]
    assert [line for line in lines if line in ours] == ours


def test_hostile_words_arrive_as_they_are(tmp_path: Path) -> None:
    """Arguments, variables and the study's name are data to the shell."""
    study = make_study(name="a\ntouch owned\n$(touch owned)")
    argv = ["/usr/bin/env", "printf", "%s|", *HOSTILE]
    exports = {f"V{number}": word for number, word in enumerate(HOSTILE)}
    code, out = run(render(study, argv, exports), tmp_path, "--finalise", "t")
    assert (code, out) == (0, "|".join([*HOSTILE, "--finalise", "t", ""]))
    script = render(study, ["/usr/bin/printenv", "V3", "V6"], exports)
    assert run(script, tmp_path) == (0, f"{HOSTILE[3]}\n{HOSTILE[6]}\n")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("environ", "place"),
    [({"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}, "7\n3\n"), ({}, "70\n\n")],
)
def test_a_task_learns_its_place(tmp_path: Path, environ: dict[str, str], place: str) -> None:
    """The array's id and the index; a plain job has none."""
    script = render(make_study(), ["/usr/bin/printenv", "SWEEP_JOB", "SWEEP_ARRAY_INDEX"], {})
    assert run(script, tmp_path, **environ) == (0, place)


def test_a_template_beside_the_study_file_wins(tmp_path: Path) -> None:
    """And what it asks for in vain is an error, not an empty word."""
    from jinja2 import UndefinedError

    study = make_study(source=str(tmp_path / "study.yaml"))
    (tmp_path / "task.sh.j2").write_text("#!/bin/sh\n# {{ study }}\nexec {{ argv }}\n")
    assert render(study, ["a b"], {}) == "#!/bin/sh\n# digits\nexec 'a b'\n"
    (tmp_path / "task.sh.j2").write_text("{{ partition }}")
    with pytest.raises(UndefinedError):
        render(study, ["a"], {})


def test_the_users_own_template_is_for_all_studies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lies beside the user's defaults; the study's folder still wins."""
    monkeypatch.setenv("SWEEP_USER_CONFIG", str(tmp_path / "me" / "config.yaml"))
    (tmp_path / "me" / "templates").mkdir(parents=True)
    (tmp_path / "me" / "templates" / "task.sh.j2").write_text("# mine\n{{ argv }}\n")
    study = make_study(source=str(tmp_path / "study.yaml"))
    assert render(study, ["a"], {}) == "# mine\na\n"
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "task.sh.j2").write_text("# the study's\n")
    assert render(study, ["a"], {}) == "# the study's\n"


BANNER = "Welcome to the cluster"
NOT_THERE = "sweep's own Python does not start there"
NO_IMPORT = "sweep cannot be imported there"


def on_a_node(
    tmp_path: Path, python: str, scontrol: str, *arguments: str, module: str = "sweep.task"
) -> tuple[int, str, list[str]]:
    """Run a task's script on the node n2; return its code, its output and what Slurm was asked."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in (
        ("squeue", f"echo '{BANNER}'; echo 'avoids=n[4-5]'; echo 'avoids=(null)'"),
        ("scontrol", f'echo "$@" >> {tmp_path}/asked; echo "{BANNER}" >&2; {scontrol}'),
        ("sleep", f'echo "slept $1" >> {tmp_path}/asked'),
        ("python", python),
    ):
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    path = str(programs / "python") if python else "/nonexistent/python"
    argv = [path, "-m", module, "/r/digits"]
    text = render(make_study(), argv, {"SWEEP_LOGS": str(tmp_path)})
    code, out = run(
        text,
        tmp_path,
        *arguments,
        SLURM_ARRAY_JOB_ID="7",
        SLURMD_NODENAME="n2",
        SWEEP_SICK_HOLD="3",
        SWEEP_LOGS=str(tmp_path),
    )
    asked = tmp_path / "asked"
    return code, out, asked.read_text().splitlines() if asked.exists() else []


@pytest.mark.parametrize(
    ("scontrol", "words"),
    [
        ("exit 0", "the node n2 is avoided: "),
        ("echo '7_0: Job is no longer pending execution' >&2; exit 1", "the node n2 is avoided: "),
        (
            "echo '7_0,3-9: No error' >&2; echo '7_1: Access/permission denied' >&2; exit 1",
            "the node n2 is sick, and was not excluded: ",
        ),
        (
            "echo 'Access/permission denied' >&2; exit 1",
            "the node n2 is sick, and was not excluded: ",
        ),
    ],
)
def test_a_node_without_the_interpreter_is_avoided(
    tmp_path: Path, scontrol: str, words: str
) -> None:
    """The array keeps away from it, beside what it avoids already; a refusal holds the node."""
    code, out, asked = on_a_node(tmp_path, "", scontrol)
    assert code == 127
    assert f"{words}{NOT_THERE}\n" in out
    assert (tmp_path / "sick-nodes.txt").read_text() == f"{words}{NOT_THERE}\n"
    assert asked[0] == "update JobId=7 ExcNodeList=n[4-5],n2"
    assert asked[1] == ("slept 3" if "not excluded" in words else "slept 0")


def test_a_node_where_sweep_does_not_import_is_avoided(tmp_path: Path) -> None:
    """Python starts there; what lacks is sweep itself, whatever the setup lines set."""
    python = '[ "$1" != -c ] || { echo "ModuleNotFoundError: sweep"; exit 1; }; echo started'
    code, out, asked = on_a_node(tmp_path, python, "exit 0")
    assert (code, "started" in out, "ModuleNotFoundError" in out) == (127, False, True)
    assert (tmp_path / "sick-nodes.txt").read_text() == f"the node n2 is avoided: {NO_IMPORT}\n"
    assert asked == ["update JobId=7 ExcNodeList=n[4-5],n2", "slept 0"]


def test_a_node_where_a_library_does_not_load_is_avoided(tmp_path: Path) -> None:
    """sweep.task comes back to the script, which has the node avoided."""
    (tmp_path / "broken" / "psycopg2").mkdir(parents=True)
    (tmp_path / "broken/psycopg2/__init__.py").write_text("raise OSError('libpq.so.5: no such')\n")
    python = f'PYTHONPATH={tmp_path}/broken exec {sys.executable} "$@"'
    code, out, asked = on_a_node(tmp_path, python, "exit 0")
    assert code == 127
    assert "OSError: libpq.so.5: no such" in out, "what lacks is in the task's log"
    assert (tmp_path / "sick-nodes.txt").read_text() == f"the node n2 is avoided: {NO_IMPORT}\n"
    assert asked == ["update JobId=7 ExcNodeList=n[4-5],n2", "slept 0"]


def test_a_task_of_no_script_says_what_does_not_import(tmp_path: Path) -> None:
    """On one machine there is no node to avoid: it fails with the traceback."""
    (tmp_path / "psycopg2").mkdir()
    (tmp_path / "psycopg2/__init__.py").write_text("raise OSError('libpq.so.5: no such')\n")
    done = subprocess.run(
        [sys.executable, "-m", "sweep.task", str(tmp_path)],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "OSError: libpq.so.5: no such" in done.stderr
