"""``make bench``: the benchmarks that this machine can run; each also runs alone.

python -m benchmarks.orchestration    what sweep costs beside the training
python -m benchmarks.proposal_waits   waits for proposals while what prepares them is killed
python -m benchmarks.storage          trials a second, against Optuna's own storages
python -m benchmarks.trainer_gpu      training speed on GPUs
python -m benchmarks.staging          what copies of data on the nodes spare
python -m benchmarks.staging_slurm    the same on a real Slurm of four nodes
python -m benchmarks.shards           examples a second from shards, against a folder of files
python -m benchmarks.profiling        what profile: true costs a training
python -m benchmarks.packing          trials an hour on one GPU, alone and packed
python -m benchmarks.packed_kills     kills of trainings that share a GPU: the others' curves
python -m benchmarks.packed_all       all of these two at once, with and without MPS; goes on
python -m benchmarks.search --help    how good samplers, pruners and promotion are (hours)
"""

from __future__ import annotations

import sys

from benchmarks import orchestration


def main() -> int:
    """Run what needs no GPU; say how to run the other."""
    print("On a machine with GPUs also: python -m benchmarks.trainer_gpu --gpus 1", file=sys.stderr)
    return orchestration.main([])


if __name__ == "__main__":
    sys.exit(main())
