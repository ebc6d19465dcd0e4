#!/bin/bash
# A run on a Ray cluster that is there (`ray up`, or your own), submitted from any machine that reaches its dashboard
# (`ray[default]` on the head). Give the sweep and a place that all nodes reach, a bucket or a shared directory:
#
#     RAY_API_SERVER_ADDRESS=http://head:8265 docs/recipes/ray-submit.sh runs/mine.toml s3://bucket/runs/mine 64
#
# Only the sweep travels, in a folder of its own: what is in the folder of a job is copied to all nodes, and can be read
# there. Providers' keys are in the environment of each node. Submit it again to go on with what remains.

set -euo pipefail

sweep=$1
place=$2
workers=$3

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$sweep" "$folder/"
ray job submit --working-dir "$folder" -- \
    evalkit run "$(basename "$sweep")" --dir "$place" --on ray --workers "$workers" --json
