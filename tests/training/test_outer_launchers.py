"""What launchers around sweep say to their processes is kept from trainings; the rest stays."""

from __future__ import annotations

import pytest

from sweep.report import _LAUNCHERS, _LOCAL_RANKS
from sweep.training.command.outer_launchers import is_of_launcher

# As each launcher's own processes print them.
SAID = {
    "Open MPI 4": """OMPI_APP_CTX_NUM_PROCS OMPI_COMMAND OMPI_COMM_WORLD_LOCAL_RANK
        OMPI_COMM_WORLD_LOCAL_SIZE OMPI_COMM_WORLD_NODE_RANK OMPI_COMM_WORLD_RANK
        OMPI_COMM_WORLD_SIZE OMPI_FILE_LOCATION OMPI_FIRST_RANKS OMPI_MCA_ess
        OMPI_MCA_ess_base_jobid OMPI_MCA_ess_base_vpid OMPI_MCA_initial_wdir
        OMPI_MCA_mpi_oversubscribe
        OMPI_MCA_orte_app_num OMPI_MCA_orte_bound_at_launch OMPI_MCA_orte_ess_node_rank
        OMPI_MCA_orte_ess_num_procs OMPI_MCA_orte_hnp_uri OMPI_MCA_orte_jobfam_session_dir
        OMPI_MCA_orte_launch OMPI_MCA_orte_local_daemon_uri OMPI_MCA_orte_num_nodes
        OMPI_MCA_orte_precondition_transports OMPI_MCA_orte_tmpdir_base
        OMPI_MCA_orte_top_session_dir OMPI_MCA_pmix OMPI_MCA_shmem_RUNTIME_QUERY_hint
        OMPI_NUM_APP_CTX OMPI_UNIVERSE_SIZE PMIX_BFROP_BUFFER_TYPE PMIX_DSTORE_21_BASE_PATH
        PMIX_GDS_MODULE PMIX_HOSTNAME PMIX_ID PMIX_NAMESPACE PMIX_RANK PMIX_SECURITY_MODE
        PMIX_SERVER_TMPDIR PMIX_SERVER_URI41 PMIX_SYSTEM_TMPDIR PMIX_VERSION""",
    "MPICH 4": "HYDI_CONTROL_FD MPIR_CVAR_CH3_INTERFACE_HOSTNAME MPI_LOCALNRANKS MPI_LOCALRANKID "
    "PMI_FD PMI_RANK PMI_SIZE",
    "torchrun": """RANK LOCAL_RANK GROUP_RANK ROLE_RANK ROLE_NAME WORLD_SIZE LOCAL_WORLD_SIZE
        GROUP_WORLD_SIZE ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID
        TORCHELASTIC_USE_AGENT_STORE PET_NPROC_PER_NODE""",
    "Lightning": "NODE_RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT",
    "srun": "PMI_RANK PMI_SIZE PMI2_FD PMIX_RANK PMIX_NAMESPACE",
    "others": "HOROVOD_RANK HOROVOD_CROSS_SIZE HOROVOD_GLOO_RENDEZVOUS_ADDR FLUX_TASK_LOCAL_ID "
    "FLUX_JOB_SIZE PALS_NODEID JSM_NAMESPACE_SIZE MV2_COMM_WORLD_SIZE TF_CONFIG "
    "JAX_COORDINATOR_ADDRESS JAX_COORDINATOR_PORT MLX_HOSTFILE PADDLE_TRAINER_ENDPOINTS",
}
STAYS = """PATH HOME CUDA_VISIBLE_DEVICES OMP_NUM_THREADS OMPI_MCA_btl OMPI_MCA_btl_tcp_if_include
    OMPI_ALLOW_RUN_AS_ROOT OMPI_CC OMPI_MCA_orte_keep_fqdn_hostnames PMIX_MCA_gds
    PMIX_INSTALL_PREFIX HOROVOD_FUSION_THRESHOLD HOROVOD_GPU_OPERATIONS FLUX_URI MPICH_GPU_SUPPORT
    MV2_USE_CUDA I_MPI_PMI_LIBRARY JAX_PLATFORMS MLX_METAL_DEBUG SLURM_JOB_ID SLURM_PROCID
    RANKING MY_RANK PETSC_DIR MP_API TORCH_HOME NODE_NAME"""


@pytest.mark.parametrize("launcher", SAID)
def test_of_launchers(launcher: str) -> None:
    """Each says a process's place, or where its run's processes meet."""
    assert [name for name in SAID[launcher].split() if not is_of_launcher(name)] == []


def test_what_stays() -> None:
    """What people tune, and what the scheduler says of the job."""
    assert [name for name in STAYS.split() if is_of_launcher(name)] == []


def test_all_that_the_reporter_asks() -> None:
    """No rank of a run around sweep can keep a training from reporting."""
    asked = {*_LOCAL_RANKS, *(name for pair in _LAUNCHERS for name in pair if name)}
    kept = {name for name in asked if not is_of_launcher(name)}
    assert kept == {"SLURM_LOCALID"}  # of the task's own step; a local array has none
