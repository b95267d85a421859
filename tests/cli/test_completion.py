"""What a shell offers at TAB: from the runs folder alone, in real shells, and never an error."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from sweep import cli
from sweep.core.paths import Runs
from sweep.studyfile import load
from tests.needs import require
from tests.toys import write_toy

SCRIPTS = Path(sys.executable).parent  # where the installed `sweep` is


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """A runs folder with two studies, whose database nobody can reach; the last is digits."""
    folder = Runs(tmp_path / "runs")
    study = load(write_toy(tmp_path, name="digits"))
    for name in ("digits", "mnist.cnn"):
        own = folder.study(name)
        commands = {"evaluate": ("true",), "export": ("true",)} if name == "digits" else {}
        own.root.mkdir(parents=True)
        own.study.write_text(replace(study, name=name, commands=commands).to_json())
        url = "postgresql://nobody@192.0.2.1/away"  # a documentation address: answers never
        own.storage.write_text(json.dumps({"url": url}))
    for number in (3, 11, 2):
        attempt = folder.study("digits").attempt(number, 1)
        attempt.root.mkdir(parents=True)
        line = {"step": 0, "time": 1.0, "metrics": {"loss": 0.5, "train_loss": 0.7}}
        attempt.metrics.write_text(json.dumps(line) + "\n")
    folder.study("mnist.cnn").trial(5).mkdir(parents=True)
    (folder.root / "no study; $(touch x)").mkdir()
    (folder.root / "no study; $(touch x)" / "study.json").write_text("{}")
    folder.last.write_text("digits\n")
    monkeypatch.chdir(tmp_path)
    return folder


def offered(*arguments: str) -> list[str]:
    """Return what is offered for the last of some words; files and folders by their type."""
    *before, begun = arguments
    complete = BashComplete(cli.main_group, {}, "sweep", cli.ASKED_BY_SHELL)
    found = complete.get_completions(before, begun)
    return [item.value if item.type == "plain" else f"<{item.type}>" for item in found]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("rer", ["rerun-best"]),
        ("db sta", ["start", "status"]),
        ("status ", ["digits", "mnist.cnn"]),
        ("status mn", ["mnist.cnn"]),
        ("status studies/x", ["<file>"]),
        ("status --runs ", ["<dir>"]),
        ("status --wa", ["--watch"]),
        ("launch ", ["<file>"]),
        ("launch study.yaml --retry f", ["failed"]),
        ("launch study.yaml --retry failed,1", ["failed,11"]),
        ("logs ", ["2", "3", "11", "digits", "mnist.cnn"]),
        ("logs 1", ["11"]),
        ("logs mnist.cnn ", ["5"]),
        ("logs digits 3 ", []),
        ("shell mnist.cnn ", ["5"]),
        ("stop --trial 3,", ["3,2", "3,11"]),
        ("stop mnist.cnn --trial ", ["5"]),
        ("rerun-best --trial 1", ["11"]),
        ("run evaluate mnist.cnn --trial ", ["5"]),
        ("run ", ["evaluate", "export"]),
        ("run ev", ["evaluate"]),
        ("run evaluate mn", ["mnist.cnn"]),
        ("run evaluate --checkpoint ", ["best", "last"]),
        ("collect --format m", ["markdown"]),
        ("collect --state c", ["complete", "cancelled"]),
        ("collect --metric ", ["score", "loss", "train_loss"]),
        ("collect -o ", ["<file>"]),
        ("collect --columns rank,tr", ["rank,trial", "rank,train_loss"]),
        ("diff 3 1", ["11"]),
        ("templates --copy task", ["task.sh.j2"]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("remove ", ["digits", "mnist.cnn"]),
    ],
)
def test_words(known: Runs, words: str, found: list[str]) -> None:
    """Each command's arguments and options offer what may stand there."""
    assert offered(*words.split(" ")) == found


def test_another_runs_folder(known: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--runs and $SWEEP_RUNS say where the studies are."""
    monkeypatch.chdir("/")
    assert offered("status", "") == []
    assert offered("status", "--runs", str(known.root), "di") == ["digits"]
    monkeypatch.setenv("SWEEP_RUNS", str(known.root))
    assert offered("logs", "1") == ["11"]


def damage_study(known: Runs) -> None:
    known.study("digits").study.write_text('{"name": 3')


def damage_last(known: Runs) -> None:
    known.last.write_bytes(b"\xff\xfe")


def damage_trials(known: Runs) -> None:
    folder = known.study("digits").root / "trials"
    folder.rename(folder.with_name("away"))
    folder.write_text("a file")


def damage_metrics(known: Runs) -> None:
    path = known.study("digits").attempt(2, 1).metrics
    path.unlink()
    os.mkfifo(path)


def damage_all(known: Runs) -> None:
    known.root.rename(known.root.with_name("away"))
    known.root.write_text("a file")


@pytest.mark.parametrize(
    "damage", [damage_study, damage_last, damage_trials, damage_metrics, damage_all]
)
def test_damaged_folders(
    known: Runs,
    damage: Callable[[Runs], None],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Whatever the folder is like: no error, no word on the line, no waiting."""
    damage(known)
    for words in ("logs ", "run ", "collect --metric ", "status ", "launch no.yaml --retry "):
        assert complete_call(f"sweep {words}", monkeypatch) in (0, 2)
        assert capfd.readouterr().err == ""


@pytest.mark.parametrize("words", ["lauch ", "status --nope ", "status a b c d ", "db nope "])
def test_wrong_calls(
    known: Runs, words: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is wrong before the word that is typed is said by the call itself, not at TAB."""
    complete_call(f"sweep {words}", monkeypatch)
    assert "rror" not in "".join(capfd.readouterr())


@pytest.mark.crashes
def test_a_fault_at_tab(
    known: Runs, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It leaves a crash file, and the line that is typed as it is."""

    def fail(runs: Runs) -> list[str]:
        raise ValueError("a fault")

    monkeypatch.setattr("sweep.cli.suggest.study_names", fail)
    assert complete_call("sweep status ", monkeypatch) == 70
    assert capfd.readouterr() == ("", "")
    (crash,) = known.crashes.iterdir()
    assert "a fault" in crash.read_text()


def complete_call(line: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Call sweep as bash does while a line is typed; return its exit code."""
    words = line.split(" ")
    monkeypatch.setenv("COMP_WORDS", "\n".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    monkeypatch.setenv(cli.ASKED_BY_SHELL, "bash_complete")
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as left:
            cli.main([])
    finally:
        signal.signal(signal.SIGTERM, before)
    return int(left.value.code or 0)


def source_of(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.run_command(["completion", shell]) == 0
    return capsys.readouterr().out


def test_the_shell_of_the_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a word it is the one in $SHELL; another is refused with those that there are."""
    fish = source_of("fish", capsys)
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert cli.run_command(["completion"]) == 0
    assert capsys.readouterr().out == fish
    monkeypatch.setenv("SHELL", "/bin/csh")
    assert cli.run_command(["completion"]) == 2
    assert "sweep completion bash|zsh|fish" in capsys.readouterr().err


def shell_environment() -> dict[str, str]:
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "TERM": "dumb"}


@pytest.mark.real
def test_bash(known: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real bash takes the function, and offers a study's trials; what is wrong says nothing."""
    file = tmp_path / "sweep.bash"
    file.write_text(source_of("bash", capsys))
    script = f"""
        . {file}
        complete -p sweep
        offer() {{
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            _sweep_completion sweep
            printf '<%s>' "${{COMPREPLY[@]}}"; echo
        }}
        offer sweep logs digits ""
        offer sweep lauch ""
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=tmp_path,
        env=shell_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    taken, trials, wrong = done.stdout.splitlines()
    assert taken.split()[:2] == ["complete", "-o"] and taken.endswith("_sweep_completion sweep")
    assert (trials, wrong) == ("<2><3><11>", "<>")


@pytest.mark.real
def test_fish(known: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real fish takes the function from its folder, and offers a study's trials."""
    require("fish")
    folder = tmp_path / "config" / "fish" / "completions"
    folder.mkdir(parents=True)
    (folder / "sweep.fish").write_text(source_of("fish", capsys))
    done = subprocess.run(
        ["fish", "-c", "complete -C 'sweep logs digits '"],
        cwd=tmp_path,
        env={**shell_environment(), "HOME": str(tmp_path), "XDG_CONFIG_HOME": f"{tmp_path}/config"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["2", "3", "11"]


@pytest.mark.real
def test_zsh(known: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a real zsh, at a terminal, TAB completes a study's name."""
    require("zsh")
    (tmp_path / "sweep.zsh").write_text(source_of("zsh", capsys))
    rc = "autoload -Uz compinit; compinit -u -d .zcompdump; . ./sweep.zsh; PS1='ready> '\n"
    (tmp_path / ".zshrc").write_text(rc)
    env = {**shell_environment(), "ZDOTDIR": str(tmp_path), "HOME": str(tmp_path)}
    pid, screen = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execvpe("zsh", ["zsh", "-d", "-i"], env)
    try:
        shown = read_until(screen, "ready> ")
        os.write(screen, b"sweep logs mn\t")
        shown = read_until(screen, "sweep logs mnist.cnn")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(screen)
    assert "rror" not in shown


def read_until(screen: int, wanted: str, wait_s: float = 180.0) -> str:
    """Return what a terminal shows once it shows that."""
    shown = ""
    while wanted not in shown:
        ready, _, _ = select.select([screen], [], [], wait_s)
        assert ready, f"no {wanted!r} in {shown!r}"
        shown += os.read(screen, 65536).decode("utf-8", "replace")
    return shown
