"""Stand-ins for enroot, for Pyxis's part of srun, and for micromamba, which no registry has.

They behave as the real ones were measured to (enroot 4.1.2, Pyxis 0.24): enroot drops the host's
environment and passes variables by name; with Pyxis the image's variables win unless named; what
fails says so in their words, with their codes; a name that is shared while its root is being made
fails, and leaves a root that breaks all later uses. An image is a JSON file: {"env": {…}}. They are
no containers: the file system stays the host's, and what is bound is only checked to be there.
That of micromamba makes an environment of an explicit list's packages (.tar.bz2) as the real one
does, and solves nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_COMMON = '''#!{python} -IS
import json, os, pathlib, shutil, sys, time

ROOTS = pathlib.Path(os.environ.get("ENROOT_DATA_PATH") or "/nonexistent")


def note(what, **more):
    with open({log!r}, "a") as stream:
        stream.write(json.dumps({{"what": what, **more}}) + "\\n")


def enter(env, workdir, argv, not_found, prefix):
    os.chdir(workdir)
    path = env.setdefault("PATH", "/usr/bin:/bin")
    if not shutil.which(argv[0], path=path):
        sys.stderr.write(prefix + "Command not found: " + argv[0] + "\\n")
        sys.exit(not_found)
    os.execvpe(argv[0], argv, env)


def make_root(root, image, fail):
    """Not atomic, as the real one: who comes meanwhile fails and breaks it."""
    try:
        root.mkdir(parents=True)
    except FileExistsError:
        if not (root / "whole").exists():
            (root / "broken").touch()
        fail("File already exists: " + str(root))
    time.sleep(0.3)
    if (root / "broken").exists():
        fail("the root was changed meanwhile: " + str(root))
    shutil.copy(image, root / "image")
    (root / "whole").touch()
    note("root", name=root.name)


def check_root(root, fail):
    if not (root / "whole").exists() or (root / "broken").exists():
        fail("No such file or directory: " + str(root))
    return json.loads((root / "image").read_text())["env"]
'''

_ENROOT = """
def fail(text):
    sys.stderr.write("[ERROR] " + text + "\\n")
    sys.exit(1)


verb, rest = sys.argv[1], sys.argv[2:]
if verb == "import":
    assert rest[0] == "--output"
    note("import", source=rest[2])
    time.sleep(0.5)
    if pathlib.Path(rest[1]).exists():
        fail("File already exists: " + rest[1])
    if "no-such" in rest[2]:
        fail("Could not process JSON input: manifest unknown")
    pathlib.Path(rest[1]).write_text(json.dumps({{"env": {{"FROM_IMAGE": "yes"}}}}))
elif verb == "create":
    assert rest[0] == "--name"
    make_root(ROOTS / rest[1], rest[2], fail)
elif verb == "list":
    print(*(path.name for path in ROOTS.glob("*")), sep="\\n")
elif verb == "remove":
    shutil.rmtree(ROOTS / rest[-1], ignore_errors=True)
elif verb == "start":
    env = {{}}
    while rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--env":
            name, has, value = rest.pop(0).partition("=")
            env[name] = value if has else os.environ.get(name, "")
        elif option == "--mount":
            source = rest.pop(0).split(":")[0]
            if not os.path.exists(source):
                fail("enroot-mount: failed to mount: " + source + ": No such file or directory")
        elif option not in ("--root", "--rw"):
            fail("Unknown option: " + option)
    image, command = rest[0], rest[1:]
    if "/" in image:
        if not os.path.exists(image):
            fail("No such file or directory: " + image)
        image_env = json.loads(open(image).read())["env"]
    else:
        image_env = check_root(ROOTS / image, fail)
    enter({{**image_env, **env}}, "/", command, 127, "enroot-switchroot: ")
"""

_SRUN = """
def fail(text, code=1):
    sys.stderr.write("slurmstepd: error: pyxis: " + text + "\\n")
    sys.exit(code)


if sys.argv[1:2] == ["--inside"]:  # the step's own process
    given, command = json.loads(sys.argv[2]), sys.argv[3:]
    roots = pathlib.Path({roots!r})
    for mount in filter(None, given.get("mounts", "").split(",")):
        if not os.path.exists(mount.split(":")[0]):
            fail("failed to mount " + mount)
    image = given.get("image", "")
    if "name" in given:
        name, _, flag = given["name"].partition(":")
        if (flag or "auto") not in ("auto", "create", "exec", "no_exec"):
            fail('--container-name: flag must be "auto", "create", "exec" or "no_exec"')
        job = os.environ.get("SLURM_JOB_ID") if (roots / "scope-job").exists() else None
        root = roots / ("pyxis_" + (job + "_" if job else "") + name)
        passed = 'error: "' + flag + '" flag was passed to --container-name but the container '
        if flag == "exec":
            fail(passed + "is not running")
        if flag == "create" and root.exists():
            fail(passed + "already exists")
        if not root.exists() and not image:
            fail('error: a container with name "' + root.name + '" does not exist, and '
                 "--container-image is not set")
        if not root.exists():
            make_root(root, image, fail)
        image_env = check_root(root, fail)
    elif image.startswith(("/", "./")):
        if not os.path.exists(image):
            fail("failed to import image: No such file or directory: " + image)
        image_env = json.loads(open(image).read())["env"]
    else:
        fail("failed to import docker image " + image)
    named = given.get("env", "").split(",")
    env = dict(os.environ)
    env.update({{key: value for key, value in image_env.items() if key not in named}})
    enter(env, given.get("workdir", "/"), command, 2, "slurmstepd: error: pyxis: ")
argv, given = sys.argv[1:], {{}}
own = []
while argv and argv[0].startswith("-"):
    option = argv.pop(0)
    if option.startswith(("--container-", "--no-container-")):
        key, _, value = option.partition("=")
        given[key.removeprefix("--container-")] = value
    else:
        own.append(option)
if given:
    argv = [sys.argv[0], "--inside", json.dumps(given), *argv]
os.execv({srun!r}, [{srun!r}, *own, *argv])
"""

_MICROMAMBA = """
import hashlib, re, tarfile, urllib.parse


def fail(text):
    sys.stderr.write("critical libmamba " + text + "\\n")
    sys.exit(1)


given, rest = {{}}, sys.argv[2:]
if sys.argv[1:2] != ["create"]:
    sys.stderr.write("The following argument was not expected: " + sys.argv[1] + "\\n")
    sys.exit(109)
while rest:
    option = rest.pop(0)
    if option in ("--prefix", "-p", "--file", "-f"):
        given[option.lstrip("-")[0]] = rest.pop(0)
    elif option in ("--yes", "-y"):
        given["y"] = "yes"
    else:
        sys.stderr.write("The following argument was not expected: " + option + "\\n")
        sys.exit(109)
prefix, lock = pathlib.Path(given["p"]), pathlib.Path(given["f"])
if "y" not in given:
    fail("Aborted: stdin is no terminal")
if prefix.exists() and any(prefix.iterdir()) and not (prefix / "conda-meta").is_dir():
    fail("Non-conda folder exists at prefix")
lines = [line.strip() for line in lock.read_text().splitlines()]
lines = [line for line in lines if line and not line.startswith("#")]
if "@EXPLICIT" not in lines:
    fail("Could not solve for environment specs: this stand-in solves nothing")
cache = pathlib.Path(os.environ["CONDA_PKGS_DIRS"])
cache.mkdir(parents=True, exist_ok=True)
note("create", prefix=str(prefix), root=os.environ["MAMBA_ROOT_PREFIX"])
(prefix / "conda-meta").mkdir(parents=True)
for line in lines:
    if line == "@EXPLICIT":
        continue
    url, _, digest = line.partition("#")
    source = pathlib.Path(urllib.parse.unquote(url.removeprefix("file://")))
    if not source.exists():
        fail("Download error (37) Could not read a file:// file [" + url + "]")
    if digest and hashlib.md5(source.read_bytes()).hexdigest() != digest:
        fail("File not valid: MD5 sum doesn't match expectation " + str(source))
    name = source.name.removesuffix(".tar.bz2")
    with tarfile.open(source, "r:bz2") as archive:
        archive.extractall(cache / name)
    info = cache / name / "info"
    placeholders = {{}}
    if (info / "has_prefix").exists():
        for entry in (info / "has_prefix").read_text().splitlines():
            text, mode, path = entry.split()
            assert mode == "text", "this stand-in leaves programs as they are"
            placeholders[path] = text
    files = (info / "files").read_text().split()
    for path in files:
        target = prefix / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(cache / name / path, target)
        if path in placeholders:
            target.write_text(target.read_text().replace(placeholders[path], str(prefix)))
    record = json.loads((info / "index.json").read_text()) | {{"files": files, "url": url}}
    (prefix / "conda-meta" / (name + ".json")).write_text(json.dumps(record))
(prefix / "conda-meta/history").write_text("==> created <==\\n# cmd: " + " ".join(sys.argv) + "\\n")
"""


def write_enroot(folder: Path, log: Path) -> Path:
    """Write the stand-in for enroot into a folder for PATH; what it makes is noted in a log."""
    return _write(folder / "enroot", (_COMMON + _ENROOT).format(python=_python(), log=str(log)))


def write_srun(folder: Path, log: Path, roots: Path, srun: str) -> Path:
    """Write an srun that has Pyxis, in front of the real one."""
    text = (_COMMON + _SRUN).format(python=_python(), log=str(log), roots=str(roots), srun=srun)
    return _write(folder / "srun", text)


def write_micromamba(folder: Path, log: Path) -> Path:
    """Write the stand-in for micromamba; what it makes is noted in a log."""
    text = (_COMMON + _MICROMAMBA).format(python=_python(), log=str(log))
    return _write(folder / "micromamba", text)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def _python() -> str:
    """Return a Python that any user may run, where there is one."""
    return (
        "/usr/bin/python3"
        if Path("/usr/bin/python3").exists()
        else os.path.realpath(sys.executable)
    )
