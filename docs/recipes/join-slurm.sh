#!/bin/bash
# A run on a Slurm cluster: the array's first task coordinates, the others play. Submit it with the sweep and a place that
# all nodes reach, a shared directory or a bucket:
#
#     sbatch docs/recipes/join-slurm.sh runs/mine.toml /shared/runs/mine
#
# Providers' keys are in the environment that sbatch passes on. The home directory is shared, so the token is found there.
# Submit it again to go on with what remains.

#SBATCH --job-name=evalkit
#SBATCH --array=0-8
#SBATCH --cpus-per-task=4
#SBATCH --time=08:00:00
# Two minutes before the time is up, workers stop what they play and leave.
#SBATCH --signal=TERM@120

set -euo pipefail

sweep=$1
place=$2
# One certificate for each submission. The key stays in the user's own directory.
private="$HOME/.local/state/evalkit/join-$SLURM_ARRAY_JOB_ID"

if [ "$SLURM_ARRAY_TASK_ID" = 0 ]; then
    mkdir -p -m 700 "$private"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
        -subj "/CN=$(hostname)" -addext "subjectAltName=DNS:$(hostname)" \
        -keyout "$private/key.pem" -out "$private/made.pem"
    mv "$private/made.pem" "$private/certificate.pem"
    exec evalkit run "$sweep" --dir "$place" --on join --workers 8 --listen 0.0.0.0:0 \
        --certificate "$private/certificate.pem" --certificate-key "$private/key.pem"
fi

until [ -s "$private/certificate.pem" ]; do
    sleep 2
done
exec evalkit join "$place" --workers "$SLURM_CPUS_PER_TASK" --authority "$private/certificate.pem" --wait 60m
