#!/bin/bash

# the same settings as the server that ran before
echo "starting sglang ..."
conda activate serving

nohup env CUDA_VISIBLE_DEVICES=6,7 python -m sglang.launch_server \
  --model-path /data/models/example-14b-ft \
  --tp 2 \
  --host 0.0.0.0 \
  --port 8081 \
  --disable-cuda-graph \
  --disable-radix-cache \
  > sglang_8081.log 2>&1 &

echo "started, pid $!"
