#!/usr/bin/env bash
# Gradient descent on a parabola, in bash: a line to $SWEEP_METRICS a step, and two files to look at.
set -euo pipefail
lr=${1:-0.1} epochs=${2:-6} x=10 epoch=0

if [ -n "${SWEEP_RESUME:-}" ]; then
    read -r epoch x <"$SWEEP_RESUME"
fi
while [ "$epoch" -lt "$epochs" ]; do
    x=$(awk -v x="$x" -v lr="$lr" 'BEGIN { printf "%.12g", x - lr * 2 * x }')
    loss=$(awk -v x="$x" 'BEGIN { printf "%.12g", x * x }')
    echo "{\"step\": $epoch, \"metrics\": {\"loss\": $loss}}" >>"$SWEEP_METRICS"
    epoch=$((epoch + 1))
    echo "$epoch $x" >"$SWEEP_CHECKPOINT_DIR/.state"
    mv "$SWEEP_CHECKPOINT_DIR/.state" "$SWEEP_CHECKPOINT_DIR/state"
    # {"stop": "pruned"}, or "checkpoint"; no file while the training may go on. Who leaves says so.
    if word=$(grep -oE 'pruned|checkpoint' "$SWEEP_CONTROL" 2>/dev/null) && [ "$epoch" -lt "$epochs" ]; then
        echo "{\"saw\": \"$word\"}" >>"$(dirname "$SWEEP_CONTROL")/answer.jsonl"
        exit 0
    fi
done
