#!/usr/bin/env bash
# Serves the agent model on four GPUs.
set -euo pipefail

docker rm -f agent 2>/dev/null || true
docker run -d --name agent --runtime=nvidia --gpus=all \
    -v "${HOME}/.cache/huggingface:/root/.cache/huggingface" \
    -p 127.0.0.1:8000:8000 \
    --env "CUDA_VISIBLE_DEVICES=0,1,2,3" \
    --env "HUGGING_FACE_HUB_TOKEN=$HF_TOKEN" \
    --ipc=host \
    vllm/vllm-openai:latest \
    --model Example/Agent-32B \
    --trust-remote-code \
    --tensor-parallel-size 4 \
    --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}' \
    --enable-prefix-caching \
    --gpu-memory-utilization 0.95

echo "logs: docker logs -f agent"
