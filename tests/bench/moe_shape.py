#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a model folder of the shape of Qwen1.5-MoE-A2.7B, without its weights.

    moe_shape.py FOLDER [LAYERS]

All weights are zero, and a hole in the file: 28 GB that take no room. What is
measured with it is the device's time, which doesn't depend on them.
"""

import json
import os
import struct
import sys

CONFIG = {
    "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
    "hidden_act": "silu", "hidden_size": 2048, "num_hidden_layers": 24,
    "num_attention_heads": 16, "num_key_value_heads": 16,
    "intermediate_size": 5632, "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632, "num_experts": 60,
    "num_experts_per_tok": 4, "norm_topk_prob": False,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0, "max_position_embeddings": 8192,
    "tie_word_embeddings": False, "vocab_size": 151936,
    "bos_token_id": None, "eos_token_id": 151643, "dtype": "float16",
}


def shapes(layers):
    """Of all tensors, by name."""
    c = CONFIG
    hidden = c["hidden_size"]
    yield "model.embed_tokens.weight", (c["vocab_size"], hidden)
    yield "lm_head.weight", (c["vocab_size"], hidden)
    yield "model.norm.weight", (hidden,)
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,)
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        for name in ("q_proj", "k_proj", "v_proj"):
            yield f"{prefix}self_attn.{name}.weight", (hidden, hidden)
            yield f"{prefix}self_attn.{name}.bias", (hidden,)
        yield prefix + "self_attn.o_proj.weight", (hidden, hidden)
        yield prefix + "mlp.gate.weight", (c["num_experts"], hidden)
        yield prefix + "mlp.shared_expert_gate.weight", (1, hidden)
        widths = {f"experts.{i}": c["moe_intermediate_size"]
                  for i in range(c["num_experts"])}
        widths["shared_expert"] = c["shared_expert_intermediate_size"]
        for name, width in widths.items():
            yield f"{prefix}mlp.{name}.gate_proj.weight", (width, hidden)
            yield f"{prefix}mlp.{name}.up_proj.weight", (width, hidden)
            yield f"{prefix}mlp.{name}.down_proj.weight", (hidden, width)


def write_zeros(path, layers):
    """A safetensors file that is its header and a hole."""
    header, offset = {}, 0
    for name, shape in shapes(layers):
        size = 2
        for dimension in shape:
            size *= dimension
        header[name] = {"dtype": "F16", "shape": list(shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(8 + len(text) + offset)


def write_json(path, value):
    """One file."""
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(value, stream)


def tokenizer():
    """Of single characters: nobody reads what this model says."""
    vocab = {chr(c): i for i, c in enumerate(range(33, 127))}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False,
                  "trim_offsets": False, "use_regex": True}
    return {"version": "1.0", "added_tokens": [{
        "id": CONFIG["eos_token_id"], "content": "<|endoftext|>",
        "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": False, "special": True}],
            "normalizer": None, "pre_tokenizer": byte_level,
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocab, "merges": []}}


def make(folder, layers=CONFIG["num_hidden_layers"]):
    """All files."""
    os.makedirs(folder, exist_ok=True)
    write_json(os.path.join(folder, "config.json"),
               {**CONFIG, "num_hidden_layers": layers})
    write_json(os.path.join(folder, "tokenizer.json"), tokenizer())
    write_json(os.path.join(folder, "tokenizer_config.json"),
               {"tokenizer_class": "PreTrainedTokenizerFast"})
    write_zeros(os.path.join(folder, "model.safetensors"), layers)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    make(sys.argv[1], *map(int, sys.argv[2:]))
