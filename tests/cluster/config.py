"""The configuration texts of a test cluster: pure functions of its layout."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

GPUS_PER_NODE = 4
SHARED_PER_NODE = {"shard": 64, "mps": 400}
CPUS_PER_NODE = 8
MEMORY_PER_NODE_MB = 8000


@dataclass(frozen=True)
class Layout:
    """What a cluster looks like; kept as JSON in its folder, so that anyone can take it down.

    Args:
        root: The cluster's folder.
        host: Short name of this machine, as slurmd sees it.
        base_port: First of the cluster's ports: slurmctld, slurmdbd, MariaDB, then each slurmd.
        nodes: Number of slurmd's, named n1, n2, ...
        proctrack: ``linuxproc`` (orphans outlive their job) or ``cgroup`` (memory limits are real).
        max_array_size: Slurm's MaxArraySize (the largest index plus one).
        slurmd_timeout_s: A silent node is DOWN, and its jobs NODE_FAIL, after this long.
        requeue_delay_s: A requeued job waits this long (Slurm's cred_expire; 120 by default).
        preempt_grace_s: A preempted job has this long between SIGTERM and its end.
        kill_wait_s: Between SIGTERM and SIGKILL of what must end (Slurm's KillWait).
        preempt: Who preempts: ``partition_prio`` (jobs in ``high`` those in ``preempt``) or ``qos``
            (jobs with the QOS ``urgent`` those with ``scavenger``).
        preempt_signals: A preempted job gets the signal of ``sbatch --signal`` at once.
        accounting: Whether there are a slurmdbd and its database.
        gpu_type: Type of the four fake GPUs of a node; a MIG profile's name works as well.
        shared: ``shard`` (64 a node) or ``mps`` (400); together they spoil each other's
            CUDA_VISIBLE_DEVICES in 22.05.
        extra: Further lines for slurm.conf; they stand last.
    """

    root: str
    host: str
    base_port: int
    nodes: int = 4
    proctrack: str = "linuxproc"
    max_array_size: int = 1001
    slurmd_timeout_s: int = 20
    requeue_delay_s: int = 10
    preempt_grace_s: int = 5
    kill_wait_s: int = 5
    preempt: str = "partition_prio"
    preempt_signals: bool = False
    accounting: bool = True
    gpu_type: str = "a100"
    shared: str = "shard"
    extra: str = ""

    @property
    def node_names(self) -> list[str]:
        return [f"n{number}" for number in range(1, self.nodes + 1)]

    @property
    def controller_port(self) -> int:
        return self.base_port

    @property
    def accounting_port(self) -> int:
        return self.base_port + 1

    @property
    def database_port(self) -> int:
        return self.base_port + 2

    @property
    def node_ports(self) -> list[int]:
        return [self.base_port + 2 + number for number in range(1, self.nodes + 1)]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def read(cls, root: Path) -> Layout:
        return cls(**json.loads((root / "cluster.json").read_text()))


def slurm_conf(layout: Layout) -> str:
    """Return slurm.conf: quick scheduling, everything beneath the cluster's folder."""
    root = layout.root
    names = f"n[1-{layout.nodes}]"
    cgroup = layout.proctrack == "cgroup"
    gres = f"gpu:{layout.gpu_type}:{GPUS_PER_NODE},{layout.shared}:{SHARED_PER_NODE[layout.shared]}"
    first, last = layout.node_ports[0], layout.node_ports[-1]
    return f"""\
ClusterName=sweeptest
SlurmctldHost={layout.host}(127.0.0.1)
SlurmctldPort={layout.controller_port}
SlurmUser=slurm
AuthType=auth/munge
# cred_expire is also how long a requeued job must wait before it may start again.
AuthInfo=socket={root}/run/munge.socket,cred_expire={layout.requeue_delay_s}
StateSaveLocation={root}/state
SlurmctldPidFile={root}/run/slurmctld.own.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmctldDebug=info
SlurmdSpoolDir={root}/spool/%n
SlurmdPidFile={root}/run/slurmd.%n.own.pid
SlurmdLogFile={root}/log/slurmd.%n.log
SlurmdDebug=info
# Nodes claim more CPUs than this machine has.
SlurmdParameters=config_overrides
SlurmdTimeout={layout.slurmd_timeout_s}
SlurmctldTimeout=10
BatchStartTimeout=10
ReturnToService=2
KillWait={layout.kill_wait_s}
MinJobAge=60
InactiveLimit=0
JobRequeue=1
MaxArraySize={layout.max_array_size}
MaxJobCount=20000
MpiDefault=none
PropagateResourceLimits=NONE
ProctrackType=proctrack/{layout.proctrack}
TaskPlugin={"task/cgroup" if cgroup else "task/none"}
Prolog={root}/etc/prolog
MailProg={root}/etc/mail
PrologFlags={"Contain" if cgroup else "Alloc"}
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=5
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=500
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=2,\
max_rpc_cnt=0
{"SlurmctldParameters=preempt_send_user_signal" if layout.preempt_signals else ""}
PreemptType=preempt/{layout.preempt}
PreemptMode=REQUEUE
{_accounting(layout) if layout.accounting else "AccountingStorageType=accounting_storage/none"}
GresTypes=gpu,{layout.shared}
NodeName={names} NodeHostname={layout.host} NodeAddr=127.0.0.1 Port=[{first}-{last}] \
CPUs={CPUS_PER_NODE} CoresPerSocket={CPUS_PER_NODE} RealMemory={MEMORY_PER_NODE_MB} \
Features=test Gres={gres} State=UNKNOWN
PartitionName=DEFAULT Nodes={names} State=UP PriorityTier=1 \
{"PreemptMode=OFF" if layout.preempt == "partition_prio" else ""}
PartitionName=main Default=YES DefaultTime=30 MaxTime=1-00:00:00
PartitionName=gpu DefaultTime=30 MaxTime=1-00:00:00
PartitionName=short DefaultTime=1 MaxTime=2
PartitionName=preempt DefaultTime=30 MaxTime=UNLIMITED PreemptMode=REQUEUE \
GraceTime={layout.preempt_grace_s}
PartitionName=preemptc DefaultTime=30 MaxTime=UNLIMITED PreemptMode=CANCEL \
GraceTime={layout.preempt_grace_s}
PartitionName=high DefaultTime=30 MaxTime=UNLIMITED PriorityTier=10
{layout.extra}
"""


def _accounting(layout: Layout) -> str:
    return f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={layout.accounting_port}
AccountingStoragePass={layout.root}/run/munge.socket
AccountingStorageEnforce=associations,limits,qos
AccountingStoreFlags=job_comment,job_env,job_script
AccountingStorageTRES=gres/gpu,gres/gpu:{layout.gpu_type},gres/{layout.shared}"""


def prolog(layout: Layout) -> str:
    """Return what a node runs before a job; it refuses while there is a file ``refuse-jobs``."""
    return f"#!/bin/sh\n[ ! -e {layout.root}/refuse-jobs ]\n"


def mail(layout: Layout) -> str:
    """Return what Slurm sends mail with: it writes subject and address into a file."""
    return f'#!/bin/sh\necho "$2 to $3" >> {layout.root}/log/mail\n'


def slurmdbd_conf(layout: Layout, password: str) -> str:
    """Return slurmdbd.conf, which holds the accounting database's password."""
    root = layout.root
    return f"""\
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={layout.accounting_port}
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=socket={root}/run/munge.socket
PidFile={root}/run/slurmdbd.own.pid
LogFile={root}/log/slurmdbd.log
DebugLevel=info
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={layout.database_port}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct_db
"""


def gres_conf(layout: Layout) -> str:
    """Return gres.conf: device nodes that are /dev/null by another name."""
    names = f"NodeName=n[1-{layout.nodes}]"
    files = f"{layout.root}/dev/fakegpu[0-{GPUS_PER_NODE - 1}]"
    return f"""\
AutoDetect=off
{names} Name=gpu Type={layout.gpu_type} File={files}
{names} Name={layout.shared} Count={SHARED_PER_NODE[layout.shared]}
"""


def cgroup_conf() -> str:
    """Return cgroup.conf: memory is constrained; cores and devices are only claimed."""
    return """\
CgroupPlugin=cgroup/v1
CgroupAutomount=no
ConstrainCores=no
ConstrainDevices=no
ConstrainRAMSpace=yes
ConstrainSwapSpace=yes
"""


def accounting_commands(user: str) -> list[list[str]]:
    """Return the sacctmgr arguments that register accounts, QOS with limits, and users.

    QOS ``small`` allows 50 submitted tasks a user, ``few`` 3 running ones, ``brief`` jobs of three
    minutes; account ``proj2`` allows 2 running and 20 submitted. Where QOS preempt, ``urgent`` does
    so to ``scavenger``, whose jobs are requeued after 20 s of grace.
    """
    every_qos = "qos=normal,small,few,brief,scavenger,urgent"
    other = ["add", "user", user, "account=proj1", "cluster=other", "defaultaccount=proj1"]
    return [
        ["add", "cluster", "sweeptest"],
        ["add", "qos", "small", "MaxSubmitJobsPerUser=50"],
        ["add", "qos", "few", "MaxJobsPerUser=3"],
        ["add", "qos", "brief", "MaxWallDurationPerJob=3"],
        ["add", "qos", "scavenger", "GraceTime=20", "PreemptMode=requeue"],
        ["add", "qos", "urgent", "Preempt=scavenger", "Priority=1000"],
        ["add", "account", "proj1,proj2", "cluster=sweeptest", every_qos],
        ["add", "user", "root", "account=proj1", "defaultaccount=proj1"],
        ["add", "user", user, "account=proj1", "defaultaccount=proj1", every_qos],
        ["add", "user", user, "account=proj2", every_qos, "MaxJobs=2", "MaxSubmitJobs=20"],
        # Another cluster in the same accounting database, whose limits say nothing here.
        ["add", "cluster", "other"],
        ["add", "account", "proj1", "cluster=other"],
        [*other, "MaxJobs=1", "MaxSubmitJobs=1", "MaxWall=1"],
    ]
