NCCL_SOCKET_IFNAME=bond0 NCCL_DEBUG=WARN NCCL_IB_DISABLE=0 \
NCCL_NET_GDR_LEVEL=PIX NCCL_IB_HCA=mlx5_0,mlx5_3,mlx5_4,mlx5_5 \
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:256 \
/opt/libs/run-with-new-libs.sh \
/opt/sglang/bin/python3 -m sglang.launch_server \
  --model-path /models/example-r1/ \
  --trust-remote-code \
  --tp-size 16 \
  --host 10.0.0.39 \
  --port 30000 \
  --dist-init-addr 10.0.0.193:5000 \
  --nnodes 2 \
  --node-rank 0 \
  --mem-fraction-static 0.8 \
  --disaggregation-mode prefill \
  --disaggregation-ib-device mlx5_0
