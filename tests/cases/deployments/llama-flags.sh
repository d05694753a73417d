cd /opt/llama.cpp/build/bin

./llama-server \
  -m ~/models/coder-7b-q5_k_m.gguf \
  --alias coder-7b \
  -ngl 29 -sm tensor --device CUDA0,CUDA1 \
  -c 4096 \
  -t 8 \
  -ot "blk\.1.*=CPU" -ot 'blk\.2.*=CPU' \
  --host 127.0.0.1 \
  --port 8080 \
  --jinja
  # optionally: --api-key mylocalkey
