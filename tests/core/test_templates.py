"""Templates: the study's, the user's and the site's win over sweep's, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.core import templates
from sweep.core.errors import InputError


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {
        "SWEEP_SITE_CONFIG": str(tmp_path / "site/site.yaml"),
        "SWEEP_USER_CONFIG": str(tmp_path / "user/config.yaml"),
    }


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    return path


def test_the_nearest_wins(tmp_path: Path, environ: dict[str, str]) -> None:
    """Each that comes nearer hides the ones before."""
    own = templates.own_folder() / "task.sh.j2"
    study = tmp_path / "study"
    hidden = [own]
    for whose, place in (
        ("site", tmp_path / "site/templates/task.sh.j2"),
        ("user", tmp_path / "user/templates/task.sh.j2"),
        ("study", study / "task.sh.j2"),
        ("study", study / "templates/task.sh.j2"),
    ):
        put(place)
        found = templates.find("task.sh.j2", study, environ)
        assert (found.whose, found.path, list(found.hidden)) == (whose, place, hidden)
        hidden.insert(0, place)


def test_only_a_template_beside_the_study_counts(tmp_path: Path, environ: dict[str, str]) -> None:
    """A starter's name within the study's folder is the user's own file."""
    put(tmp_path / "starter/study.yaml")
    assert templates.find("starter/study.yaml", tmp_path, environ).whose == "sweep"
    put(tmp_path / "templates/starter/study.yaml")
    assert templates.find("starter/study.yaml", tmp_path, environ).whose == "study"


def test_unknown(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        templates.find("task.sh", tmp_path)
    assert caught.value.hint == "Did you mean task.sh.j2?"


def test_copies_are_in_force(tmp_path: Path, environ: dict[str, str]) -> None:
    """A copy goes to the study's folder or the user's, and never over another."""
    study = tmp_path / "study"
    for to_user, whose in ((True, "user"), (False, "study")):
        copy = templates.copy_out(
            "task.sh.j2", study, to_user=to_user, force=False, environ=environ
        )
        found = templates.find("task.sh.j2", study, environ)
        assert (found.whose, found.path) == (whose, copy)
        assert copy.read_bytes() == (templates.own_folder() / "task.sh.j2").read_bytes()
        with pytest.raises(InputError, match="exists"):
            templates.copy_out("task.sh.j2", study, to_user=to_user, force=False, environ=environ)
    copy.write_text("changed")
    templates.copy_out("task.sh.j2", study, to_user=True, force=True, environ=environ)
    assert (tmp_path / "user/templates/task.sh.j2").read_text() == "changed"
    # Replaced by what it hides, not by itself.
    copy.write_text("changed again")
    templates.copy_out("task.sh.j2", study, to_user=False, force=True, environ=environ)
    assert copy.read_text() == "changed"
