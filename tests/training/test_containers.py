"""Trainings in real containers: images, values, ends and builds, on this machine."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from sweep.core.errors import InputError
from sweep.core.paths import AttemptFolder, Runs
from sweep.core.space import Space
from sweep.core.study import Environment, Objective, Study
from sweep.training import build
from sweep.training.command import assembly, filling
from sweep.training.command import environment as training_env
from sweep.training.command.environment import TrialValues
from sweep.training.exit_reason import read_end
from tests.conftest import Sweep, run_sweep, sweep_environment
from tests.needs import as_other_user, require, skip_or_fail
from tests.toys import write_toy
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.real

PYTHON = os.path.realpath(sys.executable)
BINDS = ["/usr", sys.base_prefix]
HOSTILE = "a,b 'c' \"d\" $(touch pwned) `id` ${HOME} \\ ü é: {x} %s;&|*"

# A training for an image without Python: it reports by appending to a file, and resumes.
SHELL_TRAINING = """\
step=0
if [ -n "$SWEEP_RESUME" ]; then read step < "$SWEEP_RESUME"; step=$((step + 1)); fi
echo "starts at step $step"
while [ $step -lt STEPS ]; do
  echo '{"step": '$step', "metrics": {"score": '$step'}}' >> "$SWEEP_METRICS"
  echo $step > "$SWEEP_CHECKPOINT_DIR/last.tmp"
  mv "$SWEEP_CHECKPOINT_DIR/last.tmp" "$SWEEP_CHECKPOINT_DIR/last"
  if [ -e "$SWEEP_CONTROL" ]; then echo "leaves after step $step"; exit 0; fi
  step=$((step + 1))
  sleep 0.05
done
"""


@pytest.fixture
def sweep(tmp_path: Path, runs: Path, fresh_url: str) -> Sweep:
    return partial(run_sweep, runs=runs, cwd=tmp_path, env={"SWEEP_STORAGE": fresh_url})


def make_study(folder: Path, argv: list[str], environment: Environment, **more: object) -> Study:
    return Study(
        "s",
        tuple(argv),
        (Objective("score"),),
        Space(()),
        environment=environment,
        workdir=str(folder),
        executor="local",
        **more,  # type: ignore[arg-type]
    )


def run(
    study: Study,
    folder: Path,
    params: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
) -> tuple[subprocess.CompletedProcess[str], AttemptFolder]:
    """Start a study's command as a worker does; its output is in the attempt's log too."""
    attempt = AttemptFolder(folder / "runs/s/trials/00000/attempts/1")
    attempt.checkpoints.mkdir(parents=True, exist_ok=True)
    python_path = training_env.install_reporter(folder / "runs/s/python")
    values = TrialValues(
        number=0,
        attempt=1,
        seed=1,
        params=params or {},
        config=attempt.root / "config.yaml",
        trial_dir=attempt.root,
        checkpoint_dir=attempt.checkpoints,
        resume=None,
        metrics=attempt.metrics,
        control=attempt.control,
        token="t0ken",
    )
    values.config.write_text(filling.write_config(values.params))
    argv, environ = assembly.build(study, values, {**os.environ, **(env or {})}, python_path)
    done = subprocess.run(
        argv,
        cwd=study.workdir,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    attempt.log.write_text(done.stdout)
    return done, attempt


def environment_of(kind: str, images: Path) -> str:
    """Return the section of a study file for an image of a kind."""
    image = {"sif": images / "tiny.sif", "sandbox": images / "tree", "def": "toy.def"}[kind]
    return json.dumps({"runtime": "apptainer", "image": str(image), "binds": BINDS})


@pytest.mark.parametrize("kind", ["sif", pytest.param("sandbox", marks=pytest.mark.long), "def"])
def test_a_study_trains_in_an_image(
    kind: str, sweep: Sweep, tmp_path: Path, runs: Path, images: Path
) -> None:
    """A SIF, a sandbox directory, and a definition that launch builds before the tasks start."""
    (tmp_path / "toy.def").write_text(
        f"Bootstrap: localimage\nFrom: {images}/tiny.sif\n%environment\n    export FROM_DEF=yes\n"
    )
    path = write_toy(
        tmp_path,
        trials=2,
        command=f"[{PYTHON}, train.py, '{{params}}']",
        environment=environment_of(kind, images),
    )
    ran = sweep("launch", path, "--wait")
    assert ran.code == 0, ran.err
    assert json.loads(sweep("status", "--json").out)["counts"]["complete"] == 2
    if kind == "def":  # the check asks of the image that was built, not of its source
        checked = sweep("check", path, "--on-node", "--json")
        lines = {line["name"]: line for line in json.loads(checked.out)["lines"]}
        assert checked.code == 0, checked.out
        assert [lines[name]["state"] for name in ("image", "python")] == ["ok", "ok"], lines
    provenance = json.loads((runs / "toy/manifest.json").read_text())["environment"]
    assert len(provenance["image_sha256"]) == 64
    if kind == "def":
        (built,) = (runs / ".images").glob("toy-*.sif")
        assert provenance["built"] == built.name
        assert "building" in ran.err
        assert "building" not in sweep("launch", path, "--wait").err
        # Gone since: the first task that lacks it builds it again.
        built.unlink()
        assert sweep("rerun-best", "--wait").code == 0
        assert built.exists()


def test_an_image_without_python(sweep: Sweep, tmp_path: Path, images: Path, runs: Path) -> None:
    """A shell script reports by appending to the file, from an image that has three programs."""
    path = write_toy(
        tmp_path,
        trials=2,
        command="[sh, train.sh]",
        environment=json.dumps({"runtime": "apptainer", "image": str(images / "shell.sif")}),
    )
    (tmp_path / "train.sh").write_text(SHELL_TRAINING.replace("STEPS", "4"))
    ran = sweep("launch", path, "--wait")
    assert ran.code == 0, ran.err
    rows = json.loads(sweep("collect", "--format", "json").out)
    assert [row["value"] for row in rows] == [3.0, 3.0]


PRINT = """\
import json, os, sys
sys.stdout.write(json.dumps([sys.argv[1:], {**os.environ}, open(os.environ["SWEEP_CONFIG"]).read(),
                             os.getcwd()]))
"""


@pytest.mark.parametrize("options", [(), ("--cleanenv",), ("--containall",)])
def test_values_arrive_unchanged(options: tuple[str, ...], tmp_path: Path, images: Path) -> None:
    """Parameters and variables, whatever is in them; also where the environment is cleaned."""
    (tmp_path / "show.py").write_text(PRINT)
    given = Environment(
        runtime="apptainer",
        image=str(images / "tiny.sif"),
        binds=tuple(BINDS),
        options=options,
        env={"ODD": HOSTILE, "PASSED": None},
    )
    study = make_study(tmp_path, [PYTHON, "show.py", "{odd}", "{params}"], given)
    outer = {
        "PASSED": HOSTILE,
        "CUDA_VISIBLE_DEVICES": "3",
        "SLURM_JOB_ID": "17",
        "OTHER": "x",
        "VIRTUAL_ENV": "/gone",
    }
    done, _ = run(study, tmp_path, {"odd": HOSTILE}, outer)
    assert done.returncode == 0, done.stdout
    argv, env, config, cwd = json.loads(done.stdout[done.stdout.index("[[") :])
    assert argv == [HOSTILE, f"--odd={HOSTILE}"]
    assert (env["ODD"], env["PASSED"]) == (HOSTILE, HOSTILE)
    assert (env["CUDA_VISIBLE_DEVICES"], env["SLURM_JOB_ID"]) == ("3", "17")
    assert env["SWEEP_TRIAL_DIR"] and env["SWEEP_TOKEN"] == "t0ken"
    assert "VIRTUAL_ENV" not in env
    assert ("OTHER" in env) == (not options)
    assert config == filling.write_config({"odd": HOSTILE})
    assert cwd == str(tmp_path)
    assert not (tmp_path / "pwned").exists()


def test_hostile_paths_are_bound(tmp_path: Path, images: Path) -> None:
    """A workdir with commas, colons, quotes and spaces is there inside, under its own name."""
    folder = tmp_path / "a,b:c \"d\" 'e' ü"
    folder.mkdir()
    (folder / "show.py").write_text(PRINT)
    given = Environment("apptainer", str(images / "tiny.sif"), binds=tuple(BINDS))
    study = make_study(folder, [PYTHON, "show.py"], given)
    done, _ = run(study, folder)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout[done.stdout.index("[[") :])[3] == str(folder)


@pytest.mark.parametrize(
    ("argv", "more", "outcome", "reason"),
    [
        (["sh", "-c", "exit 255"], {}, "error", "exit code 255"),
        (["sh", "-c", "exit 3"], {}, "error", "exit code 3"),
        (["sh", "-c", "kill -9 $$"], {}, "killed", "killed by SIGKILL"),
        (["sh", "-c", "kill -11 $$"], {}, "error", "crashed with signal 11"),
        (["sh", "-c", "true"], {"binds": ("/no/such",)}, "not started", "mount source"),
        (["no-such-program"], {}, "not started", "no-such-program"),
        (["true"], {"setup": ("no-such-line",)}, "not started", "environment.setup failed"),
        (["sh", "-c", "test $A = 1"], {"setup": ("export A=1",)}, "finished", ""),
        (["sh", "-c", "test $PWD = /opt"], {"workdir": "/opt"}, "finished", ""),
        (["true"], {"workdir": "/no/such/dir"}, "not started", "/no/such/dir"),
        (["true"], {"image": "broken.sif"}, "not started", "broken.sif"),
    ],
)
def test_whose_exit_code_it_is(
    argv: list[str],
    more: dict[str, object],
    outcome: str,
    reason: str,
    tmp_path: Path,
    images: Path,
) -> None:
    """The runtime's own errors, the command's, and signals are told apart."""
    (tmp_path / "broken.sif").write_text("no image")
    given: dict[str, object] = {"binds": (), "image": str(images / "tiny.sif"), **more}
    given["binds"] = (*BINDS, *given["binds"])  # type: ignore[misc]
    study = make_study(tmp_path, argv, Environment("apptainer", **given))  # type: ignore[arg-type]
    done, attempt = run(study, tmp_path)
    code = done.returncode
    end = read_end(study, attempt, code if code >= 0 else None, -code if code < 0 else None, "")
    assert (end.outcome, reason in end.reason) == (outcome, True), (end, done.stdout)


# Building


BUILD = """\
import json, os, sys
from pathlib import Path
import sweep.schedulers  # as every process of sweep's does
from sweep.training import build, ready
from sweep.core.paths import Runs
from sweep.core.study import Study
study = Study.from_json(Path("study.json").read_text())
if study.environment.built:
    ready.make_ready(study, os.environ, print)
else:
    print(build.ensure(study, Runs(Path("runs").absolute()), os.environ, print)[1].path)
"""


@pytest.mark.parametrize("who", ["launches", pytest.param("tasks", marks=pytest.mark.long)])
def test_sixteen_at_once_build_once(who: str, tmp_path: Path, images: Path) -> None:
    """A cold cache, and all at once: one builds, the others wait for it and go on."""
    (tmp_path / "toy.def").write_text(f"Bootstrap: localimage\nFrom: {images}/tiny.sif\n")
    study = make_study(tmp_path, ["true"], Environment("apptainer", "toy.def"))
    if who == "tasks":
        study, found = build.ensure(study, Runs(tmp_path / "runs"), os.environ)
        assert found is not None and found.built
        found.path.unlink()
    (tmp_path / "study.json").write_text(study.to_json())
    env = sweep_environment(tmp_path / "runs")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", BUILD],
            cwd=tmp_path,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for _ in range(16)
    ]
    ended = [(child.communicate(timeout=PATIENCE_S)[0], child.returncode) for child in started]
    assert [code for _, code in ended] == [0] * 16, ended
    assert sum("building" in text for text, _ in ended) == 1
    (made,) = (tmp_path / "runs/.images").glob("*.sif")
    assert not list((tmp_path / "runs/.images").glob(".*.tmp"))
    assert subprocess.run(["apptainer", "inspect", made], capture_output=True).returncode == 0


def test_a_build_that_fails_says_why(
    sweep: Sweep, tmp_path: Path, runs: Path, images: Path
) -> None:
    """The end of its log is shown, nothing half-made stays, and no study was made."""
    (tmp_path / "toy.def").write_text(
        f"Bootstrap: localimage\nFrom: {images}/tiny.sif\n%files\n    /no/such/file /x\n"
    )
    path = write_toy(
        tmp_path,
        command=f"[{PYTHON}, train.py, '{{params}}']",
        environment="{runtime: apptainer, image: toy.def}",
    )
    ran = sweep("launch", path)
    assert ran.code == 1
    assert "could not be built" in ran.err and "/no/such/file" in ran.err
    assert not list((runs / ".images").glob("*.sif")) and not (runs / "toy").exists()
    assert not list((runs / ".images").glob(".*.tmp"))


def test_a_definition_with_commands(tmp_path: Path, images: Path) -> None:
    """Its %post section runs with root's rights, whatever rights this machine's root has."""
    (tmp_path / "toy.def").write_text(
        f"Bootstrap: localimage\nFrom: {images}/shell.sif\n%post\n    echo made > /made\n"
    )
    study = make_study(
        tmp_path, ["sh", "-c", "read a < /made; echo $a"], Environment("apptainer", "toy.def")
    )
    study, found = build.ensure(study, Runs(tmp_path / "runs"), os.environ)
    assert found is not None and found.built
    assert run(study, tmp_path)[0].stdout.strip().endswith("made")


def test_build_again_by_force(sweep: Sweep, tmp_path: Path, runs: Path, images: Path) -> None:
    """An image that is there is left alone; with --force it is new; an edited source is another."""
    definition = tmp_path / "toy.def"
    definition.write_text(f"Bootstrap: localimage\nFrom: {images}/tiny.sif\n")
    path = write_toy(tmp_path, environment="{runtime: apptainer, image: toy.def}")
    first, again, forced = (
        json.loads(sweep("build", path, "--json", *more).out) for more in ((), (), ("--force",))
    )
    assert [first["built"], again["built"], forced["built"]] == [True, False, True]
    assert first["path"] == again["path"] == forced["path"]
    definition.write_text(definition.read_text() + "%labels\n    a b\n")
    assert json.loads(sweep("build", path, "--json").out)["path"] != first["path"]
    unpacked = json.loads(sweep("build", path, "--json", "--set", "environment.unpack=true").out)
    assert (Path(unpacked["path"]) / ".singularity.d").is_dir()
    assert len(unpacked["digest"]) == 64


def test_a_docker_archive(tmp_path: Path, images: Path) -> None:
    """What `docker save` writes becomes an image, with its variables; ours win over them."""
    import hashlib
    import io
    import tarfile

    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        archive.add(images / "shell", arcname=".")
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/usr/bin:/bin", "OF_IMAGE=yes", "ODD=the image's"]},
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"],
            },
        }
    )
    manifest = [{"Config": "c.json", "RepoTags": ["toy:1"], "Layers": ["layer.tar"]}]
    with tarfile.open(tmp_path / "toy.tar", "w") as archive:
        for name, content in (
            ("c.json", config.encode()),
            ("layer.tar", layer.getvalue()),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    given = Environment("apptainer", "toy.tar", env={"ODD": HOSTILE})
    study = make_study(tmp_path, ["sh", "-c", 'echo "$OF_IMAGE $ODD"'], given)
    study, found = build.ensure(study, Runs(tmp_path / "runs"), os.environ, print)
    assert found is not None and found.source.startswith("docker-archive:")
    done, _ = run(study, tmp_path)
    assert done.stdout.strip().endswith(f"yes {HOSTILE}"), done.stdout


RANKS = """\
import os
import torch
import torch.distributed as dist
from sweep.report import Reporter

assert os.environ["APPTAINER_CONTAINER"]
dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
Reporter().log(step=0, score=total.item())
dist.destroy_process_group()
"""


@pytest.mark.long
def test_torchrun_inside(sweep: Sweep, tmp_path: Path, images: Path) -> None:
    """Two ranks are started inside the container, and reduce over both."""
    require("torch")
    binds = [*BINDS, str(Path(sys.prefix))]
    environment = {"runtime": "apptainer", "image": str(images / "tiny.sif"), "binds": binds}
    path = write_toy(
        tmp_path,
        trials=1,
        training=RANKS,
        command=f"[{sys.executable}, train.py]",
        environment=json.dumps(environment),
        ddp="{ranks_per_node: 2, interface: lo}",
    )
    ran = sweep("launch", path, "--wait")
    assert ran.code == 0, ran.err
    assert json.loads(sweep("status", "--json").out)["best"]["value"] == 3.0


@pytest.fixture
def wheel(tmp_path: Path) -> Iterator[Path]:
    """A package of one module, as a wheel."""
    import zipfile

    path = tmp_path / "tiny_one-1.0-py3-none-any.whl"
    info = "tiny_one-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_one.py", "VALUE = 41\n")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-one\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    yield path


def test_a_venv_from_a_lock_file(sweep: Sweep, tmp_path: Path, runs: Path, wheel: Path) -> None:
    """Launch makes the environment once; training has its packages, and they are recorded."""
    (tmp_path / "requirements.txt").write_text(f"--no-index\n./{wheel.name}\n")
    training = "import tiny_one, sys\nprint(f'score={tiny_one.VALUE + 1}')\n"
    path = write_toy(
        tmp_path,
        trials=1,
        command="[python, train.py]",
        training=training,
        environment="{runtime: venv, image: requirements.txt}",
    )
    text = path.read_text().replace("at: last}", "at: last, from: {stdout: 'score=([0-9]+)'}}")
    path.write_text(text)
    ran = sweep("launch", path, "--wait")
    assert ran.code == 0, ran.err
    assert json.loads(sweep("status", "--json").out)["best"]["value"] == 42
    packages = json.loads((runs / "toy/manifest.json").read_text())["environment"]["packages"]
    assert packages["tiny-one"].startswith("1.0")


def test_what_cannot_be_built_is_said(tmp_path: Path) -> None:
    """Sources and programs that do not fit are named, with what to do."""
    (tmp_path / "env.yml").write_text("name: x\n")
    (tmp_path / "list.yml").write_text("x\n")
    runs = Runs(tmp_path / "runs")
    for given, words in (
        (Environment("conda", "env.yml"), "micromamba, mamba, conda"),
        (Environment("venv", "list.yml"), "no list of requirements"),
        (Environment("pyxis", "x.def"), "does not build"),
        (Environment("apptainer", "docker-archive:gone.tar"), "gone.tar does not exist"),
    ):
        study = make_study(tmp_path, ["true"], given)
        with pytest.raises(InputError, match=words):
            build.ensure(study, runs, {"PATH": "/nowhere"})


@pytest.mark.long
def test_the_small_definition_of_ours(tmp_path: Path, images: Path) -> None:
    """templates/containers/cpu.def builds without a container registry, and has NumPy."""
    from sweep.core.templates import own_folder
    from tests.cluster.packages import _apt

    if _apt("install", "-y", "--no-install-recommends", "debootstrap").returncode:
        skip_or_fail("apptainer", "debootstrap is not installed, and cannot be")
    definition = own_folder() / "containers/cpu.def"
    (tmp_path / "cpu.def").write_text(definition.read_text())
    (tmp_path / "t.py").write_text("import numpy\nprint(numpy.arange(4).sum())\n")
    study = make_study(tmp_path, ["python", "t.py"], Environment("apptainer", "cpu.def"))
    study, found = build.ensure(study, Runs(tmp_path / "runs"), os.environ, print)
    assert found is not None and found.built
    done, _ = run(study, tmp_path)
    assert done.stdout.strip().endswith("6"), done.stdout


def test_as_a_user(tmp_path: Path, images: Path) -> None:
    """Who isn't root builds a definition as well, and runs it."""
    become = as_other_user()
    python = "/usr/bin/python3"
    if not Path(python).exists():
        skip_or_fail("other_user", "no /usr/bin/python3, which any user may run")
    folder = Path(tempfile.mkdtemp(prefix="sweep-containers-"))
    folder.chmod(0o755)
    home = folder / "home"
    try:
        home.mkdir(parents=True)
        subprocess.run(["cp", images / "tiny.sif", folder], check=True)
        (folder / "toy.def").write_text(f"Bootstrap: localimage\nFrom: {folder}/tiny.sif\n")
        (folder / "show.py").write_text(PRINT)
        given = Environment("apptainer", "toy.def", binds=("/usr",))
        study = make_study(folder, [python, "show.py"], given)
        planned = build.plan(study, Runs(home / "runs"), os.environ)
        subprocess.run(["chmod", "-R", "a+rwX", folder], check=True)
        argv = [part.replace("{target}", str(home / "x.sif")) for part in planned.commands[0]]
        env = ["env", f"HOME={home}", f"APPTAINER_CACHEDIR={home}/c", f"APPTAINER_TMPDIR={home}"]
        done = subprocess.run([*become, *env, *argv], capture_output=True, text=True, cwd=folder)
        assert done.returncode == 0, done.stderr
        given = dataclasses.replace(given, image=str(home / "x.sif"))
        attempt = folder / "runs/s/trials/00000"
        done, _ = run(dataclasses.replace(study, environment=given), folder)
        assert done.returncode == 0, done.stdout
        subprocess.run(["chmod", "-R", "a+rwX", folder], check=True)
        assert attempt.exists()
    finally:
        subprocess.run(["rm", "-rf", folder], check=False)
