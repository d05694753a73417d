#!/usr/bin/env bash
set -euo pipefail
export CUDA_VISIBLE_DEVICES=2,3
export VLLM_WORKER_MULTIPROC_METHOD=spawn
MODEL=/models/example-70b
TP=2

ARGS=(
  "$MODEL"
  --host 0.0.0.0 --port "${VLLM_PORT:-8000}"
  --tensor-parallel-size "$TP"
  --max-model-len 32k        # fits beside the cache
  --limit-mm-per-prompt '{"image":1,"video":1}'
  --trust-remote-code
)
if [[ -n "${KEY:-}" ]]; then
  echo "with a key"
fi
nohup vllm serve "${ARGS[@]}" --api-key "$KEY" >> vllm.log 2>&1 &
