"""As whom the server runs: as the user, and, since PostgreSQL refuses root, how as root."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
from pathlib import Path

from sweep.core.errors import SweepError
from sweep.storage.embedded.folder import Folder
from sweep.storage.embedded.server_processes import Account, plain_environment

# Accounts that exist on most systems, the best first. Only their numbers matter.
ACCOUNTS = ("postgres", "daemon", "bin", "nobody")


def choose_account(folder: Folder, binaries: Path) -> Account:
    """Return an account that PostgreSQL accepts and that can reach the data and the programs.

    PostgreSQL refuses to run as root, and ``initdb`` refuses a user without an account. For both,
    a user namespace in which we appear as an ordinary account serves best: the files stay ours and
    no folder on the way needs to be opened to others. Where the system forbids namespaces, root
    gives the data folder, and it alone, to such an account.

    Raises:
        SweepError: No account works; the message says what each one met.
    """
    uid = os.geteuid()
    held = (folder.pgdata if folder.pgdata.exists() else folder.root).stat()
    owner = held.st_uid
    choices: list[Account] = []
    if uid == 0 and owner != 0:
        choices.append(Account(uid=owner, gid=held.st_gid))
    elif uid != 0 and _has_account(uid):
        choices.append(Account())
    else:
        unshare = shutil.which("unshare")
        choices += [
            Account((unshare, "--user", f"--map-user={who.pw_uid}", f"--map-group={who.pw_gid}"))
            for who in _accounts()[:1]
            if unshare
        ]
        if uid == 0 and not folder.pgdata.exists():
            choices += [Account(uid=who.pw_uid, gid=who.pw_gid) for who in _accounts()]
    met = []
    for choice in choices:
        problem = _try(choice, folder, binaries)
        if not problem:
            return choice
        met.append(f"  {_describe(choice)}: {problem}")
    if not met:
        met = ["  there is no account in /etc/passwd besides root, or no `unshare` program"]
    if uid != 0 and _has_account(uid):
        raise SweepError(f"PostgreSQL's programs cannot be run:\n{met[0]}")
    refused = "root" if uid == 0 else f"user {uid}, who has no account,"
    raise SweepError(
        f"PostgreSQL refuses to run as {refused} and no way around it works here:\n"
        + "\n".join(met),
        "Work as an ordinary user, or put the runs folder and the virtual environment where other "
        f"users can pass (the data are in {folder.root}, the programs in {binaries}), or use a "
        "server of your own: SWEEP_STORAGE=postgresql://…",
    )


def _try(account: Account, folder: Folder, binaries: Path) -> str:
    """Return what keeps this account from running the server, or nothing."""
    opened: list[tuple[Path, int]] = []
    if account.uid is not None and folder.root.stat().st_uid != account.uid:
        # To pass through, not to list; what is inside stays 0600 and 0700.
        for path in (folder.root.parent, folder.root):
            held = path.stat()
            mode = stat.S_IMODE(held.st_mode)
            if held.st_uid == os.geteuid() and not mode & stat.S_IXOTH:
                path.chmod(mode | stat.S_IXGRP | stat.S_IXOTH)
                opened.append((path, mode))
    try:
        done = subprocess.run(
            [
                *account.prefix,
                *("/bin/sh", "-c", 'cd -- "$1" && exec "$2" --version'),
                *("sh", str(folder.root), str(binaries / "postgres")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd="/",
            env=plain_environment(),
            **account.popen_options(),
        )
    except OSError as error:
        done = subprocess.CompletedProcess([], 1, stderr=str(error))
    if done.returncode == 0:
        return ""
    for path, mode in opened:
        path.chmod(mode)
    return done.stderr.strip() or f"exit code {done.returncode}"


def _describe(account: Account) -> str:
    if account.prefix:
        return "in a user namespace"
    return f"as user {account.uid}" if account.uid is not None else "as you"


def _has_account(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _accounts() -> list[pwd.struct_passwd]:
    """Return the accounts that may serve, the best first."""
    found = {account.pw_name: account for account in pwd.getpwall() if account.pw_uid != 0}
    return [found[name] for name in ACCOUNTS if name in found] or list(found.values())[:1]
