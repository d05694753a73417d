"""Makes the test models: `ENV/bin/python models.py SmolLM2-135M.gguf DIR`, run inside the vLLM environment.

smollm2          the GGUF's weights, unpacked to bfloat16 in Hugging Face's layout: 9 query and 3 key-value heads.
smollm2-h12      the same function with 12 and 4 heads, which two ranks can share: the added heads are zero.
tiny-qwen3moe    a random mixture of experts (seeded), for expert parallelism.

A second run checks the sums of all files against `rooftop-models.json` and makes nothing.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

MARKER = "rooftop-models.json"
VERSION = "1"
HEADS, KV_HEADS = 12, 4
PROBE = "The capital of France is Paris. The city's population is about"
BLOCK_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER_TENSORS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def sums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of the models, by its path inside the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MARKER)
    return {str(path.relative_to(folder)): _sha256(path) for path in files}


def is_ready(folder: Path, gguf: Path | None = None) -> bool:
    """All models are there, whole, and made by this version of the script (from this file, where one is named)."""
    marker = folder / MARKER
    if not marker.is_file():
        return False
    told = json.loads(marker.read_text(encoding="utf-8"))
    source = _sha256(gguf) if gguf else told.get("source")
    return bool(told == {"version": VERSION, "source": source, "files": sums(folder)})


def make(gguf: Path, folder: Path) -> None:
    """The three models, and their marker last."""
    begin = time.monotonic()
    if is_ready(folder, gguf):
        print(f"{folder}: ready, nothing to do")
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).unlink(missing_ok=True)
    for name in ("smollm2", "smollm2-h12", "tiny-qwen3moe"):
        shutil.rmtree(folder / name, ignore_errors=True)
    print("[1/4] smollm2 ...", flush=True)
    config, tensors = unpack(gguf, folder / "smollm2")
    print("[2/4] smollm2-h12 ...", flush=True)
    padded_config, padded = pad_heads(config, tensors)
    save(folder / "smollm2-h12", padded_config, padded, folder / "smollm2")
    print("[3/4] both give the same logits, bit for bit ...", flush=True)
    check_equal(folder / "smollm2", folder / "smollm2-h12")
    print("[4/4] tiny-qwen3moe ...", flush=True)
    make_qwen3moe(folder / "tiny-qwen3moe", folder / "smollm2")
    marker = {"version": VERSION, "source": _sha256(gguf), "files": sums(folder)}
    (folder / MARKER).write_text(json.dumps(marker, indent=1), encoding="utf-8")
    print(f"{folder}: {time.monotonic() - begin:.0f} s")


def unpack(gguf: Path, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write the GGUF as a Hugging Face folder; its config and its tensors by name."""
    import torch
    from gguf import GGUFReader, dequantize
    from transformers import AutoConfig, AutoTokenizer

    read = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    config = read.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(key, None)
    config.update(architectures=["LlamaForCausalLM"], dtype="bfloat16")
    config["head_dim"] = config["hidden_size"] // config["num_attention_heads"]
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors = {}
    for tensor in GGUFReader(gguf).tensors:
        kind = tensor.name.split(".")[-2]
        values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        if kind in heads:
            values = rows_in_halves(values, heads[kind])
        tensors[tensor_name(tensor.name)] = values.to(torch.bfloat16).contiguous()
    config["tie_word_embeddings"] = "lm_head.weight" not in tensors
    save(folder, config, tensors, None)
    tokenizer.save_pretrained(folder)
    return config, tensors


def tensor_name(name: str) -> str:
    """Hugging Face's name of a GGUF tensor: `blk.3.attn_q.weight` is `model.layers.3.self_attn.q_proj.weight`."""
    block = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if block:
        return f"model.layers.{block[1]}.{BLOCK_TENSORS[block[2]]}.weight"
    return f"{OTHER_TENSORS[name.removesuffix('.weight')]}.weight"


def rows_in_halves(weight: Any, heads: int) -> Any:
    """Rows of each head from rotary pairs (GGUF's order) to halves (Hugging Face's)."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def pad_heads(config: dict[str, Any], tensors: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same function with more heads: the added ones have zero rows in q, k, v and zero columns in o."""
    import torch

    width = config["head_dim"]
    if config["num_attention_heads"] // config["num_key_value_heads"] != HEADS // KV_HEADS:
        raise ValueError("padding must keep the number of query heads that share a key-value head")
    padded = {}
    for name, tensor in tensors.items():
        rows, columns = (*tensor.shape, 0)[:2]
        if ".q_proj." in name:
            rows = HEADS * width
        elif ".k_proj." in name or ".v_proj." in name:
            rows = KV_HEADS * width
        elif ".o_proj." in name:
            columns = HEADS * width
        if tensor.dim() == 2:
            wider = torch.zeros(rows, columns, dtype=tensor.dtype)
            wider[: tensor.shape[0], : tensor.shape[1]] = tensor
            tensor = wider
        padded[name] = tensor
    return {**config, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS}, padded


def save(folder: Path, config: dict[str, Any], tensors: dict[str, Any], tokenizer: Path | None) -> None:
    """Config, weights and, from another model's folder, the tokenizer."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for path in tokenizer.iterdir() if tokenizer else ():
        if path.name not in ("config.json", "model.safetensors"):
            shutil.copy(path, folder / path.name)


def check_equal(one: Path, other: Path) -> None:
    """Raises ValueError unless both models give the same logits for the probe, bit for bit."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(one)(PROBE, return_tensors="pt").input_ids
    with torch.inference_mode():
        logits = [AutoModelForCausalLM.from_pretrained(path)(tokens).logits for path in (one, other)]
    if not torch.equal(*logits):
        raise ValueError(f"{other.name} differs from {one.name} by {(logits[0] - logits[1]).abs().max()}")


def make_qwen3moe(folder: Path, tokenizer: Path) -> None:
    """Random weights: 2 layers, 8 experts of which a token takes 2."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    vocabulary = json.loads((tokenizer / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    config = AutoConfig.for_model(
        "qwen3_moe", vocab_size=vocabulary, hidden_size=256, intermediate_size=512, moe_intermediate_size=128,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=64, num_experts=8,
        num_experts_per_tok=2, max_position_embeddings=2048, tie_word_embeddings=False, initializer_range=0.2)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    for path in tokenizer.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            shutil.copy(path, folder / path.name)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=Path, help="SmolLM2-135M as GGUF")
    parser.add_argument("folder", type=Path, help="where the models are, or shall be")
    asked = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TQDM_DISABLE="1")
    if not asked.gguf.is_file():
        sys.exit(f"{asked.gguf}: no such file")
    make(asked.gguf.absolute(), asked.folder.absolute())
