"""The snapshot of the code: what is in it, what is linked, and who sees it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import DamagedFile, InputError
from sweep.core.paths import StudyFolder
from sweep.core.study import Environment, Study
from sweep.provenance import code_tree, manifest
from sweep.provenance import snapshot as code_snapshot
from sweep.provenance.record import choose_snapshot, what_is_missing
from tests.needs import skip_or_fail
from tests.provenance.test_capture import git, make_study

ENVIRON = {"PATH": os.environ["PATH"], "VIRTUAL_ENV": "x"}


def freeze(
    study: Study, runs: Path, environ: Mapping[str, str] = ENVIRON
) -> tuple[StudyFolder, str]:
    found = code_snapshot.plan(study, runs, environ)
    assert found is not None
    folder = StudyFolder(runs / study.name)
    return folder, code_snapshot.freeze(found, folder)


def listing(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder)) + ("@" if path.is_symlink() else "")
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    )


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with all that may lie in one, its runs too."""
    top = tmp_path / "repo"
    fill(top, "train.py", "package/a.py", "gone.py", "work/run.py")
    (top / ".gitignore").write_text("runs/\ndata/\n*.pt\nlocal.yaml\n.venv\n__pycache__\n")
    (top / "package/link.py").symlink_to("../train.py")
    (top / "outer").symlink_to("../elsewhere")
    (top / "train.py").chmod(0o755)
    git(top, "init", "-q")
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "first")
    fill(
        top,
        "new.py",
        "data/big.bin",
        "runs/s/study.json",
        "runs/.last",
        "a.pt",
        "local.yaml",
        ".venv/pyvenv.cfg",
        "package/__pycache__/a.pyc",
        "venv2/pyvenv.cfg",
        "venv2/lib/x.py",
        "old/.last",
        "old/s/study.json",
    )
    (top / "results").mkdir()
    (top / "gone.py").unlink()
    (top / "package/a.py").write_text("dirty")
    return top


def test_a_repository(repository: Path) -> None:
    """Tracked files as they are, dirty or new; ignored folders and environments are linked; runs
    and caches are left out."""
    folder, name = freeze(make_study(repository), repository / "runs")
    snapshot = folder.code / name
    assert listing(snapshot) == [
        ".gitignore",
        ".venv@",
        "a.pt@",
        "data@",
        "local.yaml",
        "new.py",
        "outer@",
        "package/a.py",
        "package/link.py@",
        "results@",
        "train.py",
        "venv2@",
        "work/run.py",
    ]
    assert (snapshot / "package/a.py").read_text() == "dirty"
    assert (snapshot / "data/big.bin").read_text() == "data/big.bin"
    assert (snapshot / "package/link.py").resolve() == (snapshot / "train.py").resolve()
    assert os.readlink(snapshot / "outer") == str(repository.parent / "elsewhere")
    assert os.access(snapshot / "train.py", os.X_OK)
    assert code_snapshot.changed_files(folder, name) == []
    (snapshot / "new.py").write_text("touched")
    (snapshot / "written.txt").write_text("by a training")
    assert code_snapshot.changed_files(folder, name) == ["new.py"]


def test_the_same_code_is_the_same_snapshot(repository: Path) -> None:
    """A second launch takes up what is there; another byte makes another one beside it."""
    runs = repository / "runs"
    folder, first = freeze(make_study(repository), runs)
    assert freeze(make_study(repository), runs)[1] == first
    fill(repository, "study.yaml")
    source = str(repository / "study.yaml")
    with_file = freeze(make_study(repository, source=source), runs)[1]
    (repository / "study.yaml").write_text("trials: 7")
    assert freeze(make_study(repository, source=source), runs)[1] == with_file == first
    (repository / "train.py").write_text("other")
    second = freeze(make_study(repository), runs)[1]
    assert second != first
    assert (folder.code / first / "train.py").read_text() == "train.py"
    assert (folder.code / second / "train.py").read_text() == "other"
    assert sorted(path.name for path in folder.code.iterdir() if path.is_dir()) == sorted(
        [first, second]
    )


def test_half_a_copy_of_a_killed_launch_is_removed(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be as large as all of the code, and nobody else would ever look at it."""
    study = make_study(repository)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(code_snapshot, "_write_list", killed)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # as SIGKILL has it
        with pytest.raises(KeyboardInterrupt):
            freeze(study, repository / "runs")
    code = StudyFolder(repository / "runs" / study.name).code
    (half,) = code.iterdir()
    assert (half / "train.py").exists()
    folder, name = freeze(study, repository / "runs")
    assert {path.name for path in folder.code.iterdir()} == {name, f"{name}.json", f"{name}.sha256"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content.splitlines(keepends=True)[0],  # cut between two lines
        None,
    ],
    ids=["empty", "cut", "cut at a line", "gone"],
)
def test_a_damaged_list_of_files_is_no_clean_bill(
    repository: Path, damage: Callable[[bytes], bytes] | None
) -> None:
    """What it lacks would count as unchanged: nobody may say so. The next launch writes it anew."""
    study = make_study(repository)
    folder, name = freeze(study, repository / "runs")
    path, whole = folder.code / f"{name}.sha256", (folder.code / f"{name}.sha256").read_bytes()
    (folder.code / name / "train.py").write_text("changed\n")
    assert code_snapshot.changed_files(folder, name) == ["train.py"]
    path.unlink()
    if damage is not None:
        path.write_bytes(damage(whole))
    for ask in (code_snapshot.changed_files, code_snapshot.refuse_damaged):
        with pytest.raises(DamagedFile, match=path.name):
            ask(folder, name)
    assert freeze(study, repository / "runs") == (folder, name)
    assert path.read_bytes() == whole
    assert code_snapshot.changed_files(folder, name) == ["train.py"]


def test_a_list_of_an_earlier_version_is_read(repository: Path) -> None:
    """Its note says nothing of the list; what is surely not whole is refused all the same."""
    folder, name = freeze(make_study(repository), repository / "runs")
    note, path = folder.code / f"{name}.json", folder.code / f"{name}.sha256"
    before = json.loads(note.read_text())
    del before[code_snapshot.LIST]
    note.write_text(json.dumps(before))
    assert code_snapshot.changed_files(folder, name) == []
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DamagedFile, match=path.name):
        code_snapshot.changed_files(folder, name)


def test_hostile_file_names(tmp_path: Path) -> None:
    """Names with line breaks and backslashes are kept, and ``sha256sum -c`` agrees."""
    top = tmp_path / "plain"
    fill(top, "a\nb.py", "c\\n.py", "d\r\u2028é.py", " e  f.py", "-g.py")
    folder, name = freeze(make_study(top), tmp_path / "runs")
    assert listing(folder.code / name) == listing(top)
    assert code_snapshot.changed_files(folder, name) == []
    checked = subprocess.run(
        ["sha256sum", "-c", "--strict", f"../{name}.sha256"],
        cwd=folder.code / name,
        capture_output=True,
        check=False,
    )
    assert checked.returncode == 0, checked
    (folder.code / name / "a\nb.py").write_text("x")
    assert code_snapshot.changed_files(folder, name) == ["a\nb.py"]


def test_submodules_come_along(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    fill(other, "part.py")
    git(other, "init", "-q")
    git(other, "add", ".")
    git(other, "commit", "-q", "-m", "part")
    allow = ("-c", "protocol.file.allow=always")
    git(repository, *allow, "submodule", "add", "-q", str(other), "sub")
    folder, name = freeze(make_study(repository), repository / "runs")
    assert (folder.code / name / "sub/part.py").read_text() == "part.py"


def test_without_git(tmp_path: Path) -> None:
    """A plain folder is copied; its data, environments and empty folders are linked."""
    top = tmp_path / "plain"
    fill(
        top,
        "train.py",
        "conf/a.yaml",
        "env/pyvenv.cfg",
        "big/x.bin",
        "runs/.last",
        "__pycache__/t.pyc",
    )
    (top / "out").mkdir()
    folder, name = freeze(make_study(top, data=("big",)), top / "runs")
    assert listing(folder.code / name) == ["big@", "conf/a.yaml", "env@", "out@", "train.py"]


@pytest.mark.parametrize("has_git", [True, False], ids=["git", "plain"])
def test_another_runs_folder_where_nothing_was_launched_yet(tmp_path: Path, has_git: bool) -> None:
    """Its server's data, with the password, and its images are no code of anybody's."""
    fill(
        tmp_path,
        "train.py",
        "other/.postgres/password",
        "other/.postgres/pgdata/PG_VERSION",
        "other/.images/a.sif",
    )
    if has_git:
        git(tmp_path, "init", "-q")
    folder, name = freeze(make_study(tmp_path), tmp_path / "runs")
    assert listing(folder.code / name) == ["train.py"]


@pytest.mark.parametrize("has_git", [True, False], ids=["git", "plain"])
def test_folders_come_and_go_meanwhile(tmp_path: Path, has_git: bool) -> None:
    """Others work in the same folder: what vanishes while it is looked at is no fault."""
    fill(tmp_path, "train.py")
    if has_git:
        git(tmp_path, "init", "-q")
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            for number in range(40):
                (tmp_path / f"scratch{number}/inner").mkdir(parents=True, exist_ok=True)
            for number in range(40):
                shutil.rmtree(tmp_path / f"scratch{number}")

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            for _ in range(60):
                assert "train.py" in code_tree.find(tmp_path).files
        finally:
            over.set()
        working.result()


def test_a_folder_that_is_closed_is_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be neither copied nor looked into, and training may not need it."""
    fill(tmp_path, "train.py", "closed/x")
    scandir = os.scandir

    def refuse(path: Any) -> Any:  # root is refused nothing, so that permissions would not do
        if Path(path).name == "closed":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = code_tree.find(tmp_path)
    assert (list(found.files), list(found.links)) == (["train.py"], ["closed"])


def test_a_folder_that_git_ignores_is_copied_by_itself(repository: Path) -> None:
    """Where the workdir itself is ignored, a link to it would freeze nothing."""
    fill(repository, "data/train.py")
    folder, name = freeze(make_study(repository / "data"), repository / "runs")
    assert listing(folder.code / name) == ["big.bin", "train.py"]


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than can be copied is refused, with its largest parts and what to do."""
    monkeypatch.setattr(code_tree, "MAX_BYTES", 1_000_000)
    fill(tmp_path, "train.py")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures/x.raw").write_bytes(bytes(2_000_000))
    with pytest.raises(InputError) as caught:
        code_snapshot.plan(make_study(tmp_path), tmp_path / "runs", ENVIRON)
    assert "Largest: pictures 2 MB, train.py 0 MB" in caught.value.message
    assert "`data`" in str(caught.value) and "code: live" in str(caught.value)
    git(tmp_path, "init", "-q")
    with pytest.raises(InputError, match=r"\.gitignore"):
        code_snapshot.plan(make_study(tmp_path), tmp_path / "runs", ENVIRON)
    assert code_snapshot.plan(make_study(tmp_path, code="live"), tmp_path / "runs", ENVIRON) is None


def test_too_many_links_are_refused(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not cut: a training that lists its folder would see a part of the data, without a word. What
    is one link, because its folder is ignored or named as data, is not counted singly."""
    before = len(code_tree.find(repository, [repository / "runs"]).links)
    monkeypatch.setattr(code_tree, "MAX_LINKS", before + 3)
    fill(repository, *(f"package/{n}.pt" for n in range(3)), *(f"data/{n}.bin" for n in range(9)))
    found = code_tree.find(repository, [repository / "runs"])
    assert set(found.links) >= {f"package/{n}.pt" for n in range(3)}
    fill(repository, "package/3.pt")
    with pytest.raises(InputError, match=r"lie singly .* package 4") as refused:
        code_tree.find(repository, [repository / "runs"])
    assert "`data`" in refused.value.hint
    assert code_tree.find(repository, [repository / "runs", repository / "package"]).links


def test_where_training_starts(repository: Path) -> None:
    """Its workdir is the copy's; paths of frozen files become their copies'; others stay."""
    work = repository / "work"
    command = (
        "python",
        str(work / "run.py"),
        f"--c={repository}/package/a.py",
        f"--d={repository}/data",
        "--out",
        f"{repository}/x.txt",
        "../../repo",
        "{lr}",
    )
    given = Environment(env={"PYTHONPATH": f"{repository}:/opt"})
    study = make_study(work, command, environment=given)
    folder, name = freeze(study, repository / "runs")
    snapshot = folder.code / name
    placed = code_snapshot.place(study, folder, name, {"PYTHONPATH": f"{work}:/usr/x", "A": "b"})
    assert placed.study.workdir == str(snapshot / "work")
    assert placed.study.command == (
        "python",
        str(snapshot / "work/run.py"),
        f"--c={snapshot}/package/a.py",
        f"--d={repository}/data",
        "--out",
        f"{repository}/x.txt",
        "../../repo",
        "{lr}",
    )
    assert placed.environ == {"PYTHONPATH": f"{snapshot}/work:/usr/x", "A": "b"}
    assert placed.study.environment.env == {"PYTHONPATH": f"{snapshot}/work:{snapshot}:/opt"}
    with pytest.raises(InputError, match="frozen code that this runs is gone"):
        code_snapshot.place(study, folder, "0123", {})
    assert code_snapshot.place(study, folder, None, {"A": "b"}) == code_snapshot.Placed(
        study, {"A": "b"}
    )
    found = code_snapshot.plan(study, repository / "runs", ENVIRON)
    assert found is not None
    said = code_snapshot.notes(found)
    assert any("run.py is an absolute path; training gets its frozen copy" in s for s in said)
    assert f"{repository}/data points into the live tree; it is not frozen." in said


def test_editable_installs(repository: Path, tmp_path: Path) -> None:
    """What is installed from the code is imported from its copy; from elsewhere, it is named."""
    site = tmp_path / "env/lib/python3.11/site-packages"
    fill(tmp_path, "env/bin/python", "env/pyvenv.cfg", "away/other/__init__.py", "map/m/x.py")
    (tmp_path / "env/bin/python").chmod(0o755)
    site.mkdir(parents=True)
    (site / "__editable__.mine-1.pth").write_text(f"{repository}/package\n")
    (site / "easy-install.pth").write_text(f"{tmp_path}/away\n")
    (site / "__editable___m_finder.py").write_text(
        f"MAPPING: dict[str, str] = {{'m': '{tmp_path}/map/m'}}\nNAMESPACES = {{}}\n"
    )
    given = Environment(runtime="venv", image=str(tmp_path / "env"))
    study = make_study(repository, environment=given)
    folder, name = freeze(study, repository / "runs")
    placed = code_snapshot.place(study, folder, name, {})
    snapshot = folder.code / name
    assert placed.environ["PYTHONPATH"] == f"{snapshot}:{snapshot}/package"
    found = code_snapshot.plan(study, repository / "runs", ENVIRON)
    assert found is not None
    said = code_snapshot.notes(found)
    assert len(said) == 3
    mine = f"{repository}/package is installed as editable; training imports its frozen copy."
    assert mine in said
    for other in ("away", "map"):
        assert any(
            s.startswith(f"{tmp_path / other} is installed") and "not frozen" in s for s in said
        )


def test_containers_see_the_copy_in_the_codes_place(repository: Path) -> None:
    """The bindings, applied for real: the old text after an edit, data and runs in their places."""
    study = make_study(repository, environment=Environment(runtime="apptainer", image="x.sif"))
    runs = repository / "runs"
    folder, name = freeze(study, runs)
    placed = code_snapshot.place(study, folder, name, {})
    assert placed.study.workdir == str(repository)
    pairs = code_snapshot.bindings(folder, name)
    assert placed.study.environment.binds == tuple(f"{a}:{b}" for a, b in pairs)
    assert pairs[0] == (folder.code / name, repository)
    fill(folder.root, "trials/00000/config.yaml", "reruns/1/x", "python/sweep/report.py")
    (repository / "train.py").write_text("edited")
    # As container programs do, all sources are those of the host.
    mounts, stage = "", repository.parent / "stage"
    for number, (source, _) in enumerate(pairs):
        place = stage / str(number)
        (place if source.is_dir() else stage).mkdir(parents=True, exist_ok=True)
        if not source.is_dir():
            place.touch()
        mounts += f"mount --bind '{source}' '{place}'; "
    for number, (_, target) in enumerate(pairs):
        mounts += f"mount --bind '{stage}/{number}' '{target}'; "
    show = f"cat train.py data/big.bin '{folder.root}/trials/00000/config.yaml'; ls '{runs}'/s"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-ec", f"{mounts} cd '{repository}' && {show}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in done.stderr:
        skip_or_fail("namespaces", done.stderr)
    assert done.stderr == ""
    assert done.stdout == "train.pydata/big.bintrials/00000/config.yamlpython\nreruns\ntrials\n"


def test_a_thousand_files_cost_little(tmp_path: Path) -> None:
    """Less than half a second more at launch: 0.4 s of CPU (git's too) was seen, and 0.1 s where
    nothing has changed. CPU time, because what a busy machine makes of it says nothing."""
    top = tmp_path / "repo"
    for number in range(1000):
        fill(top, f"p{number % 40}/m{number}.py")
        (top / f"p{number % 40}/m{number}.py").write_text("x = 1\n" * 500)
    git(top, "init", "-q")
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "many")
    study = make_study(top)
    times = []
    for _ in range(2):
        began = sum(os.times()[:4])
        freeze(study, tmp_path / "runs")
        times.append(sum(os.times()[:4]) - began)
    print(f"frozen in {times[0]:.3f} s of CPU, found unchanged in {times[1]:.3f} s")
    assert times[0] < 5.0 and times[1] < 2.0


def test_an_attempt_keeps_the_code_of_its_checkpoint(tmp_path: Path) -> None:
    """A record is the difference to its launch, and gives the whole back; what goes on keeps."""
    folder = StudyFolder(tmp_path / "s")
    folder.root.mkdir()
    environment = {"packages": {"a": "1", "b": "2"}, "python": "3.11"}
    axes = {
        "code": {"snapshot": "one", "commit": "c" * 40},
        "environment": environment,
        "data": {},
        "execution": {"command": ["x"]},
    }
    first = manifest.write(folder, axes)
    assert manifest.write(folder, axes) == first
    changed = {
        **axes,
        "environment": {"packages": {"a": "2", "c": "3"}, "python": "3.11"},
        "execution": {"command": ["x"], "gpus": []},
    }
    attempt = folder.attempt(0, 1)
    attempt.checkpoints.mkdir(parents=True)
    manifest.write_attempt(attempt, first, axes, changed)
    assert '"packages":{"a":"2","c":"3","b":null}' in attempt.provenance.read_text()
    manifest.write(folder, {**axes, "code": {"snapshot": "two"}})
    assert manifest.of_attempt(manifest.read(folder), attempt) == changed
    assert manifest.of_trial(folder, 0)["code"]["snapshot"] == "one"
    saved = attempt.checkpoints / "last.pt"
    assert choose_snapshot(folder, None, keep=True) == "two"
    assert choose_snapshot(folder, saved, keep=True) == "one"
    assert choose_snapshot(folder, saved, keep=False) == "two"


def test_what_is_gone_is_named(repository: Path, tmp_path: Path) -> None:
    """Snapshot, commit, image and data: each loss is one sentence with its path."""
    fill(tmp_path, "x.sif", "d")
    study = make_study(
        repository,
        data=(str(tmp_path / "d"),),
        environment=Environment(runtime="apptainer", image=str(tmp_path / "x.sif")),
    )
    folder = StudyFolder(tmp_path / "runs/s")
    folder.root.mkdir(parents=True)
    commit = git(repository, "rev-parse", "HEAD")
    code = {"git": "ok", "commit": commit}
    environment = {"runtime": "apptainer", "image_sha256": "1", "image": str(tmp_path / "x.sif")}
    data = {str(tmp_path / "d"): {"files": 1}}
    axes = {"code": code, "environment": environment, "data": data}
    manifest.write(folder, axes)
    assert what_is_missing(folder, study, 0) == []
    (tmp_path / "x.sif").unlink()
    assert what_is_missing(folder, study, 0) == [f"image: {tmp_path}/x.sif is gone."]
    fill(tmp_path, "x.sif")
    (tmp_path / "d").unlink()
    assert what_is_missing(folder, study, 0) == [f"data: {tmp_path}/d is gone."]
    fill(tmp_path, "d")
    shutil.rmtree(repository / ".git")
    git(repository, "init", "-q")
    [said] = what_is_missing(folder, study, 0)
    assert said.startswith(f"code: the commit {commit[:10]} that trial 0 ran is gone")
    manifest.write(folder, {**axes, "code": {**code, "snapshot": "abc"}})
    [said] = what_is_missing(folder, study, 0)
    assert said.startswith(f"code: the snapshot of commit {commit[:10]} that trial 0 ran is gone")
