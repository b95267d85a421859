"""``sweep config`` and ``sweep templates``, and a launch that uses both kinds of settings."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import Sweep
from tests.studyfile.test_defaults import FILE


def test_config_and_templates(sweep: Sweep, tmp_path: Path) -> None:
    """Each value with its origin; a template copied out is in force and rendered."""
    site, user = tmp_path / "etc/site.yaml", tmp_path / "home/config.yaml"
    for file in (site, user):
        file.parent.mkdir()
    site.write_text("slurm: {partition: gpu}\nexecutor: local\n")
    study = tmp_path / "study.yaml"
    study.write_text(FILE)
    env = {
        "SWEEP_SITE_CONFIG": str(site),
        "SWEEP_USER_CONFIG": str(user),
        "SWEEP_STORAGE": "postgresql://me:secret@db/x",
    }
    ran = sweep("config", study, env=env)
    assert ran.code == 0, ran.err
    rows = {line.split()[0]: line for line in ran.out.splitlines()}
    assert f"user defaults: {user} (not there)" in ran.out
    assert rows["slurm.partition"].split()[1:] == ["gpu", f"{site}:1"]
    assert rows["name"].endswith(f"{study}:1")
    assert "me:***@db/x" in rows["storage"] and "secret" not in ran.out
    assert rows["storage"].endswith("$SWEEP_STORAGE")
    found = json.loads(sweep("config", "--json", env=env).out)
    assert {"path": "executor", "value": "local", "from": f"{site}:2"} in found["values"]
    assert sweep("config", "nothing", env=env).code == 2

    listed = sweep("templates", env=env)
    assert listed.code == 0 and "task.sh.j2" in listed.out
    copied = sweep("templates", "--copy", "task.sh.j2", "--user", env=env)
    assert copied.out.strip() == f"wrote {user.parent}/templates/task.sh.j2"
    found = json.loads(sweep("templates", study, "--json", env=env).out)
    (task,) = [one for one in found if one["name"] == "task.sh.j2"]
    assert (task["whose"], len(task["hides"])) == ("user", 1)
