"""What the launcher of another run says to its processes: around sweep, it is not the training's.

Where a study is launched from a step, from mpirun, from torchrun or from a notebook that one of
them has started, its trainings would take that run's rank for theirs, connect to its processes, or
be refused by their own mpirun ("does not support recursive calls"). What a user tunes by variables
of the same beginnings (OMPI_MCA_btl, PMIX_MCA_gds, HOROVOD_FUSION_THRESHOLD) stays.
"""

from __future__ import annotations

import re

_OF_LAUNCHERS = (
    r"(LOCAL_|GROUP_|ROLE_|NODE_)?RANK|ROLE_NAME|((LOCAL|GROUP|ROLE)_)?WORLD_SIZE"
    r"|MASTER_(ADDR|PORT)"
    r"|(TORCHELASTIC|PET)_\w+"
    # Open MPI: its processes' places, and where they find their daemon.
    r"|OMPI_(COMM_WORLD_\w+|APP_CTX_NUM_PROCS|COMMAND|ARGV|FILE_LOCATION|FIRST_RANKS|NUM_APP_CTX"
    r"|UNIVERSE_SIZE)"
    r"|OMPI_MCA_(ess|ess_base_\w+|pmix|initial_wdir|mpi_oversubscribe|shmem_RUNTIME_QUERY_hint"
    r"|orte_(app_num|bound_at_launch|ess_\w+|hnp_uri|jobfam_session_dir|launch|local_daemon_uri"
    r"|num_nodes|precondition_transports|tmpdir_base|top_session_dir))"
    r"|PRTE_LAUNCHED|PMIX_(?!MCA_|INSTALL_PREFIX)\w+|PMIX2_\w+|PMI2?_\w+"
    # MPICH's hydra and its like.
    r"|HYDI_CONTROL_FD|MPIR_CVAR_CH3_INTERFACE_HOSTNAME|MPI_LOCAL(NRANKS|RANKID)|MPI_(RANKID|NRANKS)"
    r"|(MV2|MVP)_COMM_WORLD_\w+|MPISPAWN_\w+|MP_(CHILD|PROCS)"
    r"|PALS_\w+|ALPS_APP_PE|JSM_NAMESPACE_\w+|FLUX_(TASK_(RANK|LOCAL_ID)|JOB_(SIZE|NNODES))"
    r"|HOROVOD_((LOCAL_|CROSS_)?(RANK|SIZE)|HOSTNAME|CONTROLLER|CPU_OPERATIONS"
    r"|GLOO_(RENDEZVOUS_(ADDR|PORT)|IFACE))"
    r"|JAX_(PROCESS_ID|NUM_PROCESSES|COORDINATOR_(ADDRESS|PORT))|MLX_(RANK|WORLD_SIZE|HOSTFILE)"
    r"|PADDLE_(TRAINER_ID|TRAINERS_NUM|TRAINER_ENDPOINTS|CURRENT_ENDPOINT)|TF_CONFIG"
)


def is_of_launcher(name: str) -> bool:
    """Tell whether a variable says a process's place among those of a launcher."""
    return re.fullmatch(_OF_LAUNCHERS, name) is not None
