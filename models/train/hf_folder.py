# SPDX-License-Identifier: MIT
"""A model as the folder that Hugging Face's tools read and write."""

import json
import pathlib

import numpy as np
import torch

import safetensor_file
from model import Model, Shape
from tokenizer import SPECIAL, write_json

END = "<|im_end|>"
PAD = "<|endoftext|>"


def names(shape):
    """Yields (name in the file, name here, (rows or columns of an expert))."""
    yield "model.embed_tokens.weight", "embed.weight", None
    yield "model.norm.weight", "norm.weight", None
    if not shape.tied:
        yield "lm_head.weight", "head.weight", None
    for n in range(shape.layers):
        there, here = f"model.layers.{n}.", f"layers.{n}."
        yield there + "input_layernorm.weight", here + "input_norm.weight", None
        yield (there + "post_attention_layernorm.weight",
               here + "expert_norm.weight", None)
        for part in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm",
                     "k_norm"):
            yield (f"{there}self_attn.{part}.weight",
                   f"{here}attention.{part}.weight", None)
        yield there + "mlp.gate.weight", here + "experts.router.weight", None
        for e in range(shape.experts):
            part = slice(e * shape.width, (e + 1) * shape.width)
            for p in ("gate", "up", "down"):
                where = (part,) if p != "down" else (slice(None), part)
                yield (f"{there}mlp.experts.{e}.{p}_proj.weight",
                       f"{here}experts.{p}.weight", where)


def save(model, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = model.state_dict()
    tensors = {}
    for there, here, part in names(model.shape):
        weight = state[here] if part is None else state[here][part]
        tensors[there] = weight.detach().numpy().astype(np.float16)
    safetensor_file.write(folder / "model.safetensors", tensors)
    write_json(folder / "config.json", config(model.shape))
    write_json(folder / "generation_config.json",
               dict(do_sample=False, **token_ids(model.shape)))


def token_ids(shape):
    first = shape.vocab - len(SPECIAL)
    return dict(eos_token_id=first + SPECIAL.index(END),
                pad_token_id=first + SPECIAL.index(PAD))


def config(shape):
    """config.json. Rope, dtype and expert count stand in it twice: version 5 of
    transformers renamed them, and older tools know the old names."""
    return dict(
        architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe",
        vocab_size=shape.vocab, hidden_size=shape.hidden,
        intermediate_size=shape.experts * shape.width,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim,
        hidden_act="silu", max_position_embeddings=shape.positions,
        rms_norm_eps=shape.eps, tie_word_embeddings=shape.tied,
        rope_theta=shape.theta,
        rope_parameters=dict(rope_type="default", rope_theta=shape.theta),
        attention_bias=False, attention_dropout=0.0, use_sliding_window=False,
        sliding_window=None, decoder_sparse_step=1, mlp_only_layers=[],
        moe_intermediate_size=shape.width, num_experts=shape.experts,
        num_local_experts=shape.experts,
        num_experts_per_tok=shape.used, norm_topk_prob=shape.renormalize,
        router_aux_loss_coef=0.01, output_router_logits=False,
        bos_token_id=None, **token_ids(shape), dtype="float16",
        torch_dtype="float16", use_cache=True)


def read_shape(folder):
    c = json.loads((pathlib.Path(folder) / "config.json").read_text())
    if c["model_type"] != "qwen3_moe":
        raise ValueError(f"{folder}: {c['model_type']} is not qwen3_moe")
    rope = c.get("rope_parameters") or {}
    return Shape(
        vocab=c["vocab_size"], hidden=c["hidden_size"],
        layers=c["num_hidden_layers"], heads=c["num_attention_heads"],
        kv_heads=c["num_key_value_heads"], head_dim=c["head_dim"],
        experts=c.get("num_experts") or c["num_local_experts"],
        used=c["num_experts_per_tok"],
        width=c["moe_intermediate_size"], eps=c["rms_norm_eps"],
        theta=float(rope.get("rope_theta", c.get("rope_theta", 10000.0))),
        positions=c["max_position_embeddings"],
        renormalize=c["norm_topk_prob"], tied=c["tie_word_embeddings"])


def load(folder):
    """The model in float32, whatever the file holds."""
    shape = read_shape(folder)
    tensors = safetensor_file.read(pathlib.Path(folder) / "model.safetensors")
    model = Model(shape)
    state = model.state_dict()
    for there, here, part in names(shape):
        weight = torch.from_numpy(tensors[there].astype(np.float32))
        (state[here] if part is None else state[here][part]).copy_(weight)
    return model.eval()
