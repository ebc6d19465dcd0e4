#!/bin/bash
# A run on a Ray cluster that lives as long as this job of Slurm: Ray (2.49 or later) starts on each node, and evalkit on
# the first. Give the sweep and a directory that all nodes share, or a bucket:
#
#     sbatch docs/recipes/ray-slurm.sh runs/mine.toml /shared/runs/mine
#
# Submit it again to go on with what remains. Slurm passes the providers' keys on from your environment. The first
# signal comes two minutes before the job's end: until then what is on its way comes back, and nothing is charged.

#SBATCH --job-name=evalkit
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=08:00:00
#SBATCH --signal=TERM@120

set -euo pipefail

sweep=$1
place=$2
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes%%$'\n'*}

exec srun --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" \
    ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_NNODES" --num-cpus "$SLURM_CPUS_PER_TASK" -- \
    evalkit run "$sweep" --dir "$place" --on ray --workers "$((SLURM_NNODES * SLURM_CPUS_PER_TASK))" --json
