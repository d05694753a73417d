docker run --gpus '"device=0,1,2,3,4,5,6,7"' \
  --shm-size 32g \
  -p 8000:8000 \
  -e OMP_NUM_THREADS=1 \
  -v ~/.cache/huggingface:/root/.cache/huggingface \
  --ipc=host \
  lmsysorg/sglang:v0.4.6.post5-cu124 \
  python3 -m sglang.launch_server \
    --model-path Example/Reasoner-32B \
    --host 0.0.0.0 --port 8000 \
    --trust-remote-code \
    --attention-backend flashinfer \
    --quantization fp8 \
    --attention-backend flashinfer \
    --dp-size 4 \
    --tp 2 \
    --pp-size 1 \
    --schedule-conservativeness 0.1 \
    --max-running-requests 64 \
    --mem-fraction-static 0.7
