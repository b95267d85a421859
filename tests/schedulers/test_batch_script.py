"""The batch script: what stands in it, and what bash makes of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sweep.core.study import Slurm
from sweep.schedulers.slurm.batch_script import render
from tests.study_rows import make_study

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
        timeout=60,
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


@pytest.mark.parametrize(
    ("scontrol", "words"),
    [
        ("exit 0", "the node n2 is avoided: "),
        ("echo '7_0: Job is no longer pending execution' >&2; exit 1", "the node n2 is avoided: "),
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
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in (
        ("squeue", "echo 'n[4-5]'"),
        ("scontrol", f'echo "$@" >> {tmp_path}/asked; {scontrol}'),
        ("sleep", f'echo "slept $1" >> {tmp_path}/asked'),
    ):
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    text = render(make_study(), ["/nonexistent/python"], {"SWEEP_LOGS": str(tmp_path)})
    code, out = run(
        text, tmp_path, SLURM_ARRAY_JOB_ID="7", SLURMD_NODENAME="n2", SWEEP_SICK_HOLD="3"
    )
    assert code == 127
    sentence = words + "sweep's own Python does not start there\n"
    assert sentence in out
    assert (tmp_path / "sick-nodes.txt").read_text() == sentence
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[0] == "update JobId=7 ExcNodeList=n[4-5],n2"
    assert asked[1] == ("slept 3" if "not excluded" in words else "slept 0")
