#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the small random models beside this file, and their golden logits.

    make.py [NAME...]
    make.py --into FOLDER NAME

Run the first only to change a model: what it wrote is committed. The second is
for models that are too many files for that; a test makes them when it runs. The
numbers come from reference.py, which tests/unit/model/test_reference checks
against Hugging Face transformers. Weights are such that experts win by a clear
margin: rounding must not decide which one runs.
"""

import json
import os
import sys

import numpy as np

import reference

HERE = os.path.dirname(os.path.abspath(__file__))
VOCAB, LENGTH = 128, 12
SEEDS = 400  # that are tried for a model
DRAWS = 64  # for a router that looks at a code

COMMON = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 32, "hidden_act": "silu",
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False, "bos_token_id": None,
    "eos_token_id": VOCAB - 1, "pad_token_id": VOCAB - 3,
    "dtype": "float16",
}
MOE = {"num_experts": 4, "num_experts_per_tok": 2,
       "moe_intermediate_size": 32, "decoder_sparse_step": 1,
       "mlp_only_layers": [], "norm_topk_prob": True}

# What each model is there to cover, besides its architecture.
MODELS = {
    # Llama 3's rope scaling; a matrix whose rows stay F16 (80 columns).
    "llama": ("LlamaForCausalLM", "llama", {
        "intermediate_size": 80, "attention_bias": False, "mlp_bias": False,
        "rope_theta": 500000.0, "rope_scaling": {
            "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16}}),
    # QKV biases, tied embeddings, linear rope scaling in the old spelling.
    "qwen2": ("Qwen2ForCausalLM", "qwen2", {
        "tie_word_embeddings": True, "rope_theta": 10000.0,
        "rope_scaling": {"type": "linear", "factor": 2.0}}),
    # Norms of q and k, biases all over attention, new spelling of rope.
    "qwen3": ("Qwen3ForCausalLM", "qwen3", {
        "attention_bias": True, "tie_word_embeddings": True,
        "rope_parameters": {"rope_theta": 1000000.0,
                            "rope_type": "default"}}),
    # One dense layer among sparse ones.
    "qwen3moe": ("Qwen3MoeForCausalLM", "qwen3_moe", {
        **MOE, "attention_bias": False, "mlp_only_layers": [0],
        "rope_theta": 10000.0}),
    # A shared expert; weights that are not renormalized.
    "qwen2moe": ("Qwen2MoeForCausalLM", "qwen2_moe", {
        **MOE, "norm_topk_prob": False, "tie_word_embeddings": True,
        "shared_expert_intermediate_size": 32, "rope_theta": 10000.0}),
    "mixtral": ("MixtralForCausalLM", "mixtral", {
        "num_local_experts": 4, "num_experts_per_tok": 2,
        "intermediate_size": 32, "tie_word_embeddings": True,
        "rope_theta": 1000000.0}),
}

# Models with many experts. No draw of so many routers speaks clearly by chance:
# these look at a code of the token only, which all layers leave alone.
CODE = 16
CODED = {"hidden_size": 32, "intermediate_size": 32, "head_dim": 16,
         "moe_intermediate_size": 32, "decoder_sparse_step": 1,
         "mlp_only_layers": [], "norm_topk_prob": True, "code": CODE,
         "rope_theta": 10000.0}
MADE = {
    "top8of128": ("Qwen3MoeForCausalLM", "qwen3_moe", {
        **CODED, "num_experts": 128, "num_experts_per_tok": 8,
        "attention_bias": False}),
    "top1of16": ("Qwen2MoeForCausalLM", "qwen2_moe", {
        **CODED, "num_experts": 16, "num_experts_per_tok": 1,
        "num_hidden_layers": 3, "norm_topk_prob": False,
        "shared_expert_intermediate_size": 32}),
    # Experts in layers 1 and 7 only: who guesses is far from who is meant.
    "gaps": ("Qwen3MoeForCausalLM", "qwen3_moe", {
        **CODED, "num_experts": 16, "num_experts_per_tok": 2,
        "num_hidden_layers": 9, "decoder_sparse_step": 2,
        "mlp_only_layers": [3, 5], "attention_bias": False}),
    "deep": ("Qwen3MoeForCausalLM", "qwen3_moe", {
        **CODED, "num_experts": 128, "num_experts_per_tok": 8,
        "num_hidden_layers": 64, "attention_bias": False}),
}


def make_config(name):
    """config.json of a model."""
    class_name, model_type, own = {**MODELS, **MADE}[name]
    return {"architectures": [class_name], "model_type": model_type,
            **COMMON, **own}


class Maker:
    """Random tensors for one config."""

    def __init__(self, config, seed, tokens):
        self.config = config
        self.hidden = config["hidden_size"]
        self.tokens = np.unique(tokens)
        self.random = np.random.Generator(np.random.PCG64(seed))
        self.tensors = {}

    def matrix(self, name, rows, cols, gain=1.0):
        """Keeps the scale of what it is multiplied with, times gain."""
        values = self.random.standard_normal((rows, cols))
        self.tensors[name + ".weight"] = \
            (values * gain / np.sqrt(cols)).astype(np.float16)

    def vector(self, name, count, mean, spread):
        """A norm's weight or a bias."""
        values = mean + spread * self.random.standard_normal(count)
        self.tensors[name] = values.astype(np.float16)

    def attention(self, prefix):
        """Of one layer."""
        c = self.config
        q = c["num_attention_heads"] * c["head_dim"]
        kv = c["num_key_value_heads"] * c["head_dim"]
        kind = c["model_type"]
        biased = c.get("attention_bias") or kind in ("qwen2", "qwen2_moe")
        for name, rows in (("q_proj", q), ("k_proj", kv), ("v_proj", kv)):
            self.matrix(prefix + name, rows, self.hidden)
            if biased:
                self.vector(prefix + name + ".bias", rows, 0, 0.3)
        self.matrix(prefix + "o_proj", self.hidden, q)
        self.keep_code(prefix + "o_proj")
        if c.get("attention_bias"):
            self.vector(prefix + "o_proj.bias", self.hidden, 0, 0.3)
        if kind.startswith("qwen3"):
            for name in ("q_norm", "k_norm"):
                self.vector(f"{prefix}{name}.weight", c["head_dim"], 1, 0.2)

    def glu(self, prefix, width, names=("gate_proj", "up_proj", "down_proj")):
        """Gate, up and down."""
        self.matrix(prefix + names[0], width, self.hidden, 2)
        self.matrix(prefix + names[1], width, self.hidden, 2)
        self.matrix(prefix + names[2], self.hidden, width)
        self.keep_code(prefix + names[2])

    def keep_code(self, name):
        """The matrix adds nothing to the code."""
        self.tensors[name + ".weight"][:self.config.get("code", 0)] = 0

    def router(self, layer, name, experts):
        """Few tokens are near the border when it speaks clearly."""
        code = self.config.get("code", 0)
        if not code:
            self.matrix(name, experts, self.hidden, 3)
            return
        k = self.config["num_experts_per_tok"]
        seen = self.tensors["model.embed_tokens.weight"][self.tokens, :code] \
            * self.tensors[f"model.layers.{layer}.post_attention_layernorm"
                           ".weight"][:code]
        best, margin = None, -1
        for _ in range(DRAWS):
            self.matrix(name, experts, self.hidden, 3)
            weight = self.tensors[name + ".weight"]
            weight[:, code:] = 0
            logits = np.sort(seen.astype(np.float32) @
                             weight[:, :code].astype(np.float32).T)
            lead = (logits[:, -k] - logits[:, -k - 1]).min()
            if lead > margin:
                best, margin = weight, lead
        self.tensors[name + ".weight"] = best

    def ffn(self, layer):
        """Of one layer."""
        c = self.config
        prefix = f"model.layers.{layer}."
        experts = c.get("num_experts", c.get("num_local_experts", 0))
        dense = (layer in c.get("mlp_only_layers", []) or
                 (layer + 1) % c.get("decoder_sparse_step", 1))
        if not experts or dense:
            self.glu(prefix + "mlp.", c["intermediate_size"])
            return
        mixtral = c["model_type"] == "mixtral"
        prefix += "block_sparse_moe." if mixtral else "mlp."
        self.router(layer, prefix + "gate", experts)
        for i in range(experts):
            if mixtral:
                self.glu(f"{prefix}experts.{i}.", c["intermediate_size"],
                         ("w1", "w3", "w2"))
            else:
                self.glu(f"{prefix}experts.{i}.", c["moe_intermediate_size"])
        if c["model_type"] == "qwen2_moe":
            self.glu(prefix + "shared_expert.",
                     c["shared_expert_intermediate_size"])
            self.matrix(prefix + "shared_expert_gate", 1, self.hidden)

    def make(self):
        """All tensors."""
        self.matrix("model.embed_tokens", VOCAB, self.hidden, 8)
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            self.vector(prefix + "input_layernorm.weight", self.hidden, 1,
                        0.2)
            self.attention(prefix + "self_attn.")
            self.vector(prefix + "post_attention_layernorm.weight",
                        self.hidden, 1, 0.2)
            self.ffn(layer)
        self.vector("model.norm.weight", self.hidden, 1, 0.2)
        if not self.config["tie_word_embeddings"]:
            self.matrix("lm_head", VOCAB, self.hidden, 3)
        return self.tensors


def make_tokenizer(special):
    """Printable ASCII, byte by byte, and the special tokens."""
    vocab = {chr(c): i for i, c in enumerate(range(33, 127))}
    for text in ("\u0120", "\u010a"):
        vocab[text] = len(vocab)
    first = VOCAB - len(special)
    added = [{"id": first + i, "content": text, "single_word": False,
              "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, text in enumerate(special)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False,
                  "trim_offsets": False, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": added, "normalizer": None,
            "pre_tokenizer": byte_level, "post_processor": None,
            "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocab, "merges": []}}


def write_json(folder, name, value):
    """One file of a folder."""
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(value, stream, indent=1)
        stream.write("\n")


def write_texts(folder, name):
    """Everything but numbers."""
    if name == "llama":
        special = ["<|end_of_text|>", "<|start_header_id|>",
                   "<|end_header_id|>", "<|eot_id|>"]
        template = ("{% for m in messages %}<|start_header_id|>{{ m.role }}"
                    "<|end_header_id|>\n\n{{ m.content }}<|eot_id|>"
                    "{% endfor %}")
    else:
        special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        template = ("{% for m in messages %}<|im_start|>{{ m.role }}\n"
                    "{{ m.content }}<|im_end|>\n{% endfor %}")
    write_json(folder, "config.json", make_config(name))
    write_json(folder, "tokenizer.json", make_tokenizer(special))
    write_json(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False, "chat_template": template})
    write_json(folder, "generation_config.json",
               {"eos_token_id": [VOCAB - 1], "pad_token_id": VOCAB - 3})


def margin_of(folder, tensors, tokens):
    """The smallest lead of a chosen expert, over all formats."""
    reference.write_safetensors(os.path.join(folder, "model.safetensors"),
                                tensors)
    margin = np.inf
    for quantize in reference.FORMATS:
        model = reference.Model(folder, quantize)
        for sequence in tokens:
            model.logits(sequence)
        margin = min(margin, model.margin)
    return margin


def make_tokens(sequences, length):
    """The same ones always; never a special one."""
    return np.random.Generator(np.random.PCG64(7)).integers(
        0, VOCAB - 8, (sequences, length)).astype(np.int32)


def make_model(name):
    """One folder beside this file."""
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    write_texts(folder, name)
    tokens = make_tokens(2, LENGTH)
    np.save(os.path.join(folder, "tokens.npy"), tokens)
    config = make_config(name)
    sparse = "num_experts_per_tok" in config
    margins = [(margin_of(folder, Maker(config, seed, tokens).make(), tokens),
                -seed) for seed in range(SEEDS if sparse else 1)]
    margin, seed = max(margins)
    margin_of(folder, Maker(config, -seed, tokens).make(), tokens)
    for quantize in reference.FORMATS:
        values = reference.logits(folder, quantize).astype(np.float32)
        np.save(os.path.join(folder, f"logits-{quantize}.npy"), values)
    print(f"{name}: seed {-seed}, margin {margin:.3g}, "
          f"deviation of the logits {values.std():.3g}")


def make_into(folder, name):
    """A folder elsewhere, without logits."""
    os.makedirs(folder, exist_ok=True)
    write_texts(folder, name)
    tokens = make_tokens(2, LENGTH)
    np.save(os.path.join(folder, "tokens.npy"), tokens)
    reference.write_safetensors(
        os.path.join(folder, "model.safetensors"),
        Maker(make_config(name), 0, tokens).make())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--into"] and len(sys.argv) == 4:
        make_into(*sys.argv[2:])
    else:
        for model_name in sys.argv[1:] or MODELS:
            make_model(model_name)
