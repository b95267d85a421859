"""Bring a real Slurm up on this machine, break it in chosen ways, and take it down.

Everything lies in one folder and listens on ports of its own, so that several clusters stand side
by side. Only root can: several slurmd's, device nodes and a user account are needed.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import secrets
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster import config, machine, packages, processes
from tests.cluster.packages import Missing
from tests.waiting import PATIENCE_S

__all__ = ["Cluster", "Missing"]


class Cluster:
    """munge, slurmctld, slurmdbd with a private MariaDB, and several slurmd's, in one folder.

    Partitions: ``main`` (default), ``gpu``, ``short`` (2 minutes), ``preempt`` (requeued by jobs
    in ``high``), ``preemptc`` (cancelled by them). QOS ``small`` (50 submitted tasks a user),
    ``few`` (3 running). Accounts ``proj1``, and ``proj2`` (2 running, 20 submitted). Each node
    claims 8 CPUs, 8000 MB, 4 GPUs ``a100`` and 64 shards.

    Args:
        root: Folder of the cluster; short (sockets lie in it) and readable by everyone.
        nodes: Number of nodes, n1, n2, ...
        proctrack: ``linuxproc`` or ``cgroup``.
        base_port: First port; chosen free when None.
        settings: Further fields of ``config.Layout``.
    """

    def __init__(
        self,
        root: Path,
        nodes: int = 4,
        proctrack: str = "linuxproc",
        base_port: int | None = None,
        **settings: object,
    ) -> None:
        self.root = Path(root).resolve()
        self.user = "sweeper"
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        if (self.root / "cluster.json").exists():
            self.layout = config.Layout.read(self.root)
            self.user = (self.root / "user").read_text().strip()
        else:
            self.layout = config.Layout(
                str(self.root),
                socket.gethostname().partition(".")[0],
                base_port or 0,
                nodes,
                proctrack,
                **settings,  # type: ignore[arg-type]
            )

    # -- up and down

    def up(self) -> Cluster:
        """Bring the cluster up, after removing what a crashed predecessor left in the folder.

        Raises:
            Missing: this machine cannot run it; the text says what it lacks.
            TimeoutError: a daemon did not come up; the text holds the tail of its log.
        """
        with machine.lock_machine():  # programs are there before their package is set up
            packages.ensure_packages()
        if self.layout.proctrack == "cgroup" and (lacking := machine.explain_no_cgroups()):
            raise Missing(lacking)
        if len(str(self.root)) > 60:
            raise Missing(f"a shorter folder than {self.root} (socket names are limited)")
        self.down()
        try:
            self._prepare()
            self._start_accounting()
            self.start_slurmctld()
            for node in self.nodes:
                self.start_slurmd(node, wait=False)
            self._await_idle()
        except BaseException:
            self.down(keep_logs=True)
            raise
        return self

    def down(self, keep_logs: bool = False) -> None:
        """Kill everything that belongs to the cluster, and undo what it changed; repeatable.

        Raises:
            RuntimeError: a process survived SIGKILL for 10 s.
        """
        uid = self._uid()
        survivors = processes.kill_all(lambda: processes.find_leftovers(self.root, uid))
        for child in self._children.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=5)
        self._children.clear()
        with machine.lock_machine():
            machine.remove_hosts(self.root)
            machine.remove_user(self.root, self.user)
        if uid is not None:
            machine.remove_cgroups(uid, self.nodes)
        if self.root.exists() and (self.root / "etc").exists():
            for entry in self.root.iterdir():
                if entry.name == "owner" or (keep_logs and entry.name == "log"):
                    continue
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if survivors:
            raise RuntimeError(f"processes {survivors} of {self.root} cannot be killed")

    def heal(self) -> None:
        """After a test: cancel every job, start what was killed, resume what was stopped.

        Raises:
            TimeoutError: the nodes did not become idle within a minute.
        """
        self.refuse_jobs(False)
        for name in self.daemons:
            self._signal(name, signal.SIGCONT, missing_ok=True)
        if self.layout.accounting and "slurmdbd" not in self.running():
            self.start_slurmdbd()
        if "slurmctld" not in self.running():
            self.start_slurmctld()
        self.run(["scancel", f"--user={self.user}"], timeout_s=60)
        self.run(["scancel", "--user=root"], timeout_s=60)
        processes.kill_all(lambda: processes.find_job_processes(self.root))  # saves KillWait
        for node in self.nodes:
            if f"slurmd.{node}" not in self.running():
                self.start_slurmd(node, wait=False)
        self._await_idle(resume=True)
        processes.kill_all(lambda: processes.find_job_processes(self.root))  # orphans

    # -- use

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes."""
        return self.layout.node_names

    @property
    def home(self) -> Path:
        """Home of the cluster's user; every node reads it."""
        return self.root / "home"

    def env(self, user: str | None = None) -> dict[str, str]:
        """Return a whole environment for commands on this cluster, as its user or another."""
        account = pwd.getpwnam(user or self.user)
        path = [*os.environ.get("PATH", "").split(":"), *packages.SEARCH_PATH.split(":")]
        return {
            "PATH": ":".join(dict.fromkeys(filter(None, path))),
            "HOME": account.pw_dir,
            "USER": account.pw_name,
            "LOGNAME": account.pw_name,
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
            "SLURM_CONF": f"{self.root}/etc/slurm.conf",
        }

    def run(
        self,
        command: Sequence[str] | str,
        user: str = "root",
        check: bool = False,
        timeout_s: float = 120,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a command (a string: through bash) on the cluster's login node, and wait for it.

        Args:
            user: ``root``, or ``cluster.user`` for the account that is not root.
            env: Variables beside those of ``env()``.
            timeout_s: Three minutes where it is less: a busy machine is no fault.
            cwd: Working folder; the user's home by default.

        Raises:
            subprocess.CalledProcessError: with ``check``, when it fails.
            subprocess.TimeoutExpired: it ran longer than ``timeout_s``.
        """
        child = self.start(command, user=user, env=env, cwd=cwd)
        try:
            stdout, stderr = child.communicate(stdin, timeout=max(timeout_s, PATIENCE_S))
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            raise
        done = subprocess.CompletedProcess(child.args, child.returncode, stdout, stderr)
        if check and done.returncode:
            raise subprocess.CalledProcessError(
                done.returncode, done.args, done.stdout + done.stderr, done.stderr
            )
        return done

    def start(
        self,
        command: Sequence[str] | str,
        user: str = "root",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command like ``run``, without waiting for it."""
        account = pwd.getpwnam(user)
        argv = ["bash", "-c", command] if isinstance(command, str) else list(command)
        as_user: dict[str, object] = {}
        if account.pw_uid != os.geteuid():
            as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        return subprocess.Popen(
            argv,
            env={**self.env(user), **(env or {})},
            cwd=cwd or self.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **as_user,  # type: ignore[call-overload]
        )

    def submit(self, script: str, *options: str, user: str | None = None) -> str:
        """Submit a bash script given as text; return the job's number."""
        done = self.run(
            ["sbatch", "--parsable", *options],
            user=user or self.user,
            stdin=f"#!/bin/bash\n{script}\n",
            check=True,
        )
        return done.stdout.strip().split(";")[0]

    def wait(self, job: str, timeout_s: float = 60) -> None:
        """Wait until squeue lists no unfinished part of a job."""

        def is_over() -> bool:
            done = self.run(["squeue", "-h", "-j", job, "-o", "%i"])
            return not done.stdout.strip() and (
                done.returncode == 0 or "Invalid job id" in done.stderr
            )

        processes.wait_for(is_over, timeout_s, f"the end of job {job}")

    def sacct(self, job: str, fields: str = "JobID,State,ExitCode") -> list[list[str]]:
        """Return sacct's rows about a job, steps included (they lag by up to 5 s)."""
        done = self.run(["sacct", "-nP", "-j", job, "-o", fields], check=True)
        return [line.split("|") for line in done.stdout.splitlines()]

    def sql(self, statement: str) -> str:
        """Ask the accounting database; rows by line, columns by tab."""
        return self.run([*self._mariadb(), statement], check=True).stdout

    # -- faults

    @property
    def daemons(self) -> list[str]:
        """Names of the daemons, in the order of their start."""
        accounts = ["mariadbd", "slurmdbd"] if self.layout.accounting else []
        return ["munged", *accounts, "slurmctld", *(f"slurmd.{n}" for n in self.nodes)]

    def running(self) -> list[str]:
        """Return the names of the daemons that are alive."""
        return [name for name in self.daemons if self.pid(name) is not None]

    def pid(self, daemon: str) -> int | None:
        """Return a daemon's process id, None when it is dead."""
        return processes.read_pid(self.root / "run" / f"{daemon}.pid")

    def start_slurmd(self, node: str, wait: bool = True) -> None:
        """Start a node's slurmd; with ``wait``, until slurmctld has heard of it."""
        self._start(f"slurmd.{node}", [_program("slurmd"), "-D", "-N", node])
        if wait:
            processes.wait_for(
                lambda: self._node_states()[node] in ("idle", "mix", "alloc", "comp"),
                30,
                f"node {node} to respond",
            )

    def kill_slurmd(self, node: str) -> None:
        """Kill a node's slurmd; its jobs live on until Slurm calls the node down."""
        self._signal(f"slurmd.{node}", signal.SIGKILL)

    def start_slurmctld(self) -> None:
        """Start slurmctld with the state that it last saved, and wait until it answers."""
        self._start("slurmctld", [_program("slurmctld"), "-D"])
        processes.wait_for(self._answers, 30, f"slurmctld to answer\n{self._tail('slurmctld')}")

    def save_state(self) -> None:
        """Have slurmctld save what it knows, by ending it in peace: one that is killed soon after a
        job's end knows that job as running, and one that only srun waited for stays so."""
        self._signal("slurmctld", signal.SIGTERM)
        self._await_death("slurmctld")
        self.start_slurmctld()

    def kill_slurmctld(self) -> None:
        """Kill slurmctld, which loses what it has not saved yet."""
        self._signal("slurmctld", signal.SIGKILL)

    def configure(self, **settings: object) -> None:
        """Change fields of the layout that slurm.conf says, and have the daemons read it anew."""
        self.layout = config.Layout(**{**vars(self.layout), **settings})  # type: ignore[arg-type]
        with machine.lock_machine():  # another cluster reads it when it chooses its ports
            self._write("cluster.json", self.layout.to_json())
        self._write("etc/slurm.conf", config.slurm_conf(self.layout))
        self.save_state()  # not all is read while it runs
        self.run(["scontrol", "reconfigure"], check=True)
        self._await_idle(resume=True)

    def pause_slurmctld(self) -> None:
        """Stop slurmctld with SIGSTOP: connections are accepted and never answered."""
        self._signal("slurmctld", signal.SIGSTOP)

    def resume_slurmctld(self) -> None:
        """Let a paused slurmctld go on."""
        self._signal("slurmctld", signal.SIGCONT)

    def start_slurmdbd(self) -> None:
        """Start slurmdbd, and wait until it answers."""
        self._start("slurmdbd", [_program("slurmdbd"), "-D"])
        port = self.layout.accounting_port
        processes.wait_for(
            lambda: _connects(port), 60, f"slurmdbd to listen\n{self._tail('slurmdbd')}"
        )

    def stop_slurmdbd(self) -> None:
        """End slurmdbd: sacct fails, jobs go on."""
        self._signal("slurmdbd", signal.SIGTERM)
        self._await_death("slurmdbd")

    def set_node(self, node: str, state: str, reason: str = "test") -> None:
        """Set a node's state: DOWN, DRAIN, RESUME, ..."""
        update = ["scontrol", "update", f"NodeName={node}", f"State={state}"]
        self.run([*update, *([] if state == "RESUME" else [f"Reason={reason}"])], check=True)

    def refuse_jobs(self, refused: bool = True) -> None:
        """Let every node fail to start jobs: Slurm drains it, and puts the job back, held."""
        flag = self.root / "refuse-jobs"
        if refused:
            flag.touch()
        else:
            flag.unlink(missing_ok=True)

    # -- inside

    def _prepare(self) -> None:
        """Make folders, user, device nodes, keys and configuration."""
        for name in ("etc", "run", "log", "tmp", "dev", "state", "spool", "db", "home"):
            (self.root / name).mkdir(parents=True, exist_ok=True, mode=0o755)
        for node in self.nodes:
            (self.root / "spool" / node).mkdir()
        with machine.lock_machine():
            if not self.layout.base_port:
                settings = {**vars(self.layout), "base_port": machine.choose_ports(20)}
                self.layout = config.Layout(**settings)
            self._write("cluster.json", self.layout.to_json())
            self.user = machine.add_user(self.root)
            machine.add_hosts(self.root, self.nodes)
        self._write("user", self.user)
        for number in range(config.GPUS_PER_NODE):
            device = self.root / "dev" / f"fakegpu{number}"
            os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
            device.chmod(0o666)
        account = pwd.getpwnam(self.user)
        os.chown(self.home, account.pw_uid, account.pw_gid)
        shutil.chown(self.root / "state", "slurm", "slurm")
        # The daemons run as root, slurm and mysql, and each makes files in these three.
        for name in ("log", "run", "tmp"):
            (self.root / name).chmod(0o1777)
        (self.root / "etc/munge.key").write_bytes(secrets.token_bytes(128))
        (self.root / "etc/munge.key").chmod(0o400)
        self._write("etc/slurm.conf", config.slurm_conf(self.layout))
        self._write("etc/gres.conf", config.gres_conf(self.layout))
        self._write("etc/prolog", config.prolog(self.layout), 0o755)
        self._write("etc/mail", config.mail(self.layout), 0o755)
        if self.layout.proctrack == "cgroup":
            self._write("etc/cgroup.conf", config.cgroup_conf())

    def _start_accounting(self) -> None:
        """Start munge, MariaDB and slurmdbd, and register cluster, accounts, QOS and users."""
        root = self.root
        # In a folder for temporary files of two servers, each removes the other's at its start.
        database = ["--no-defaults", f"--datadir={root}/db", f"--tmpdir={root}/tmp"]
        database += ["--user=mysql"]
        munge = [f"--socket={root}/run/munge.socket", f"--key-file={root}/etc/munge.key"]
        munge += [f"--log-file={root}/log/munged.log", f"--seed-file={root}/run/munge.seed"]
        munge += [f"--pid-file={root}/run/munged.own.pid", "--foreground", "--force"]
        self._start("munged", [_program("munged"), *munge])
        if not self.layout.accounting:
            return
        shutil.chown(root / "db", "mysql", "mysql")
        install = [_program("mariadb-install-db"), *database]
        install += ["--auth-root-authentication-method=socket", "--skip-test-db", "--skip-log-bin"]
        install += ["--innodb-log-file-size=8M", "--innodb-flush-method=nosync"]
        done = subprocess.run(
            install, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if done.returncode != 0:
            said = done.stdout.decode(errors="replace")
            raise RuntimeError(f"mariadb-install-db exited {done.returncode}:\n{said}")
        serve = [_program("mariadbd"), *database, f"--socket={root}/run/mariadb.socket"]
        serve += ["--bind-address=127.0.0.1", f"--port={self.layout.database_port}"]
        serve += ["--skip-log-bin", "--innodb-flush-log-at-trx-commit=0", "--skip-name-resolve"]
        serve += ["--innodb-lock-wait-timeout=900", "--innodb-log-file-size=8M"]
        serve += ["--max-allowed-packet=16M", f"--pid-file={root}/db/own.pid"]
        self._start("mariadbd", serve)
        password = secrets.token_hex(16)
        grant = f"""CREATE USER slurm@'127.0.0.1' IDENTIFIED BY '{password}';
            GRANT ALL ON slurm_acct_db.* TO slurm@'127.0.0.1';"""
        processes.wait_for(
            lambda: _connects(self.layout.database_port),
            30,
            f"MariaDB to listen\n{self._tail('mariadbd')}",
        )
        # It listens there before it has its socket.
        processes.wait_for(self._takes_sql, 30, "MariaDB to take statements")
        self.sql(grant)
        self._write("etc/slurmdbd.conf", config.slurmdbd_conf(self.layout, password), 0o600)
        shutil.chown(root / "etc/slurmdbd.conf", "slurm", "slurm")
        self.start_slurmdbd()
        for arguments in config.accounting_commands(self.user):
            self.run([_program("sacctmgr"), "-i", *arguments], check=True)

    def _mariadb(self) -> list[str]:
        """Return the command line that takes a statement as its last word."""
        mariadb = [_program("mariadb"), "--no-defaults", f"--socket={self.root}/run/mariadb.socket"]
        return [*mariadb, "-N", "-e"]

    def _takes_sql(self) -> bool:
        return self.run([*self._mariadb(), "SELECT 1"]).returncode == 0

    def _start(self, name: str, argv: list[str]) -> None:
        """Start a daemon in the foreground of a session of its own, and record it."""
        if self.pid(name) is not None:
            raise RuntimeError(f"{name} of {self.root} is running already")
        environment = {
            "PATH": packages.SEARCH_PATH,
            "LANG": "C.UTF-8",
            "SLURM_CONF": f"{self.root}/etc/slurm.conf",
            "SWEEP_TEST_CLUSTER": str(self.root),
        }
        with open(self.root / "log" / f"{name}.out", "ab") as log:
            child = subprocess.Popen(
                argv,
                env=environment,
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children[name] = child
        processes.write_pid(self.root / "run" / f"{name}.pid", child.pid)

    def _signal(self, name: str, number: int, missing_ok: bool = False) -> None:
        pid = self.pid(name)
        if pid is not None:
            os.kill(pid, number)
        elif not missing_ok:
            raise RuntimeError(f"{name} of {self.root} is not running")
        if number == signal.SIGKILL:
            self._await_death(name)

    def _await_death(self, name: str) -> None:
        processes.wait_for(lambda: self.pid(name) is None, 30, f"the end of {name}")
        if child := self._children.pop(name, None):
            child.wait()

    def _answers(self) -> bool:
        return self.run(["scontrol", "ping"]).stdout.find(" is UP") >= 0

    def _node_states(self) -> dict[str, str]:
        """Return all nodes' states.

        Asked after one node alone, slurmctld says of its CPUs what it last told somebody who asked
        after all: "mix" or "alloc", however long its jobs have been over.
        """
        asked = self.run(["sinfo", "-h", "-N", "-p", "main", "-o", "%N %t"]).stdout
        said = dict.fromkeys(self.nodes, "unknown") | dict(map(str.split, asked.splitlines()))
        return {
            node: re.sub(r"[^a-z]+$", "", state) if "*" not in state else "unknown"
            for node, state in said.items()
        }

    def _await_idle(self, resume: bool = False) -> None:
        """Wait until every node is idle; with ``resume``, taking those back that are down.

        A node whose slurmd lost the message of a job's end completes for minutes: with
        ``resume`` one that does so for 20 s is set down and taken back, which ends it.
        """
        began = time.monotonic()

        states: dict[str, str] = {}

        def are_idle() -> bool:
            states.update(self._node_states())
            for node, state in states.items():
                update = ["scontrol", "update", f"NodeName={node}"]
                waited_s = time.monotonic() - began
                if resume and state == "comp" and waited_s > 20:
                    self.run([*update, "State=DOWN", "Reason=stuck"])
                if resume and state in ("down", "drain", "drng", "fail", "comp"):
                    # Refused where the node came back by itself in the meantime.
                    self.run([*update, "State=RESUME"])
            return set(states.values()) == {"idle"}

        try:
            processes.wait_for(are_idle, 150, "all nodes to be idle")
        except TimeoutError as error:
            nodes = self.run(["sinfo", "-N", "-l"]).stdout + self.run(["squeue"]).stdout
            raise TimeoutError(f"{error} {states}\n{nodes}\n{self._tail('slurmctld')}") from None

    def _tail(self, name: str) -> str:
        """Return the last lines of a daemon's log."""
        for log in (self.root / "log" / f"{name}.log", self.root / "log" / f"{name}.out"):
            with contextlib.suppress(OSError):
                if text := log.read_text(errors="replace").strip():
                    return "\n".join(text.splitlines()[-8:])
        return ""

    def _write(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self.root / name
        path.write_text(text)
        path.chmod(mode)

    def _uid(self) -> int | None:
        """Return the user id of the cluster's own user, None when there is none."""
        with contextlib.suppress(KeyError):
            account = pwd.getpwnam(self.user)
            return account.pw_uid if account.pw_dir == str(self.home) else None
        return None

    def __repr__(self) -> str:
        return f"Cluster({shlex.quote(str(self.root))})"


def _program(name: str) -> str:
    path = packages.find_program(name)
    if path is None:
        raise Missing(f"program {name}")
    return path


def _connects(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2):
        return True
    return False
