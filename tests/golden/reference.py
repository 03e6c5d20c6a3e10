# SPDX-License-Identifier: MIT
"""The decoders that npu_compiler knows, once more, in NumPy and float64.

Written from the definitions, not from the compiler, and slow. `check` compares
it with the logits that Hugging Face transformers gives for a folder; `logits`
computes them, with the weights rounded as the compiler rounds them.

    reference.py check FOLDER...
    reference.py logits FOLDER fp16|int8|int4[/int8|/int4] OUTPUT.npy

The second format, if there is one, is that of the experts.
"""

import json
import math
import os
import struct
import sys

import numpy as np

DTYPES = {"F32": np.float32, "F16": np.float16}
FORMATS = ("fp16", "int8", "int4")


def read_safetensors(path):
    """Tensors of a file, by name."""
    with open(path, "rb") as stream:
        size, = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(size))
        data = stream.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        flat = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    """The same bytes for the same tensors, always."""
    header, offset = {}, 0
    names = {dtype: name for name, dtype in DTYPES.items()}
    for name, tensor in sorted(tensors.items()):
        header[name] = {"dtype": names[tensor.dtype.type],
                        "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in sorted(tensors.items()):
            stream.write(tensor.tobytes())


# What weights are worth after quantization. GGML's reference algorithms.

def round_f16(x):
    """To the nearest half."""
    return x.astype(np.float16).astype(np.float64)


def round_q8_0(x):
    """Blocks of 32 with one scale, 8 bits each."""
    blocks = x.astype(np.float32).reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore"):
        inverse = np.where(scale == 0, 0, np.float32(1) / scale)
    scaled = blocks * inverse.astype(np.float32)
    codes = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))
    return (codes * round_f16(scale)).reshape(x.shape)


def round_q4_0(x):
    """Blocks of 32 with one scale, 4 bits each."""
    blocks = x.astype(np.float32).reshape(-1, 32)
    largest = np.abs(blocks).argmax(axis=1)[:, None]
    scale = np.take_along_axis(blocks, largest, 1) / np.float32(-8)
    with np.errstate(divide="ignore"):
        inverse = np.where(scale == 0, 0, np.float32(1) / scale)
    codes = np.trunc(blocks * inverse.astype(np.float32) + np.float32(8.5))
    codes = np.minimum(codes, 15) - 8
    return (codes * round_f16(scale)).reshape(x.shape)


def round_weight(name, x, quantize):
    """As the compiler stores the tensor."""
    quantize, _, experts = quantize.partition("/")
    if experts and ".experts." in name:
        quantize = experts
    if x.ndim == 1 or name.endswith((".gate.weight",
                                     "shared_expert_gate.weight")):
        return x.astype(np.float64)
    if quantize == "fp16" or x.shape[-1] % 32:
        return round_f16(x)
    if quantize == "int8" or "embed_tokens" in name or "lm_head" in name:
        return round_q8_0(x)
    return round_q4_0(x)


# The model

def silu(x):
    """SiLU."""
    return x / (1 + np.exp(-x))


def softmax(x):
    """Over the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rope_of(config):
    """Theta and the parameters of its scaling, wherever they stand."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return rope.get("rope_theta", config.get("rope_theta", 10000.0)), rope


def frequencies(config, head_dim):
    """Radians a position, of each pair."""
    theta, rope = rope_of(config)
    f = theta ** (-np.arange(0, head_dim, 2) / head_dim)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "linear":
        return f / rope["factor"]
    if kind != "llama3":
        return f
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    context = rope["original_max_position_embeddings"]
    wavelength = 2 * math.pi / f
    smooth = (context / wavelength - low) / (high - low)
    between = (1 - smooth) * f / rope["factor"] + smooth * f
    return np.where(wavelength < context / high, f,
                    np.where(wavelength > context / low, f / rope["factor"],
                             between))


class Model:
    """A folder's model with its weights rounded to a format."""

    def __init__(self, folder, quantize="fp16"):
        with open(os.path.join(folder, "config.json"),
                  encoding="utf-8") as stream:
            self.config = json.load(stream)
        tensors = read_safetensors(os.path.join(folder, "model.safetensors"))
        self.weights = {name: round_weight(name, tensor, quantize)
                        for name, tensor in tensors.items()}
        self.margin = math.inf  # smallest lead of a chosen expert

    def norm(self, x, name):
        """RMS norm over the last axis."""
        eps = self.config["rms_norm_eps"]
        scale = np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
        return x / scale * self.weights[name + ".weight"]

    def linear(self, x, name):
        """With the bias, if there is one."""
        y = x @ self.weights[name + ".weight"].T
        return y + self.weights.get(name + ".bias", 0)

    def attention(self, x, prefix):
        """Causal attention of one sequence."""
        c = self.config
        heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
        head_dim = c.get("head_dim") or c["hidden_size"] // heads
        length = len(x)
        q = self.linear(x, prefix + "q_proj").reshape(length, heads, head_dim)
        k = self.linear(x, prefix + "k_proj").reshape(length, kv_heads, -1)
        v = self.linear(x, prefix + "v_proj").reshape(length, kv_heads, -1)
        if prefix + "q_norm.weight" in self.weights:
            q = self.norm(q, prefix + "q_norm")
            k = self.norm(k, prefix + "k_norm")
        angle = np.outer(np.arange(length), frequencies(c, head_dim))[:, None]

        def rotate(y):
            a, b = np.split(y, 2, axis=-1)
            return np.concatenate(
                [a * np.cos(angle) - b * np.sin(angle),
                 b * np.cos(angle) + a * np.sin(angle)], axis=-1)

        q = rotate(q)
        k = np.repeat(rotate(k), heads // kv_heads, axis=1)
        v = np.repeat(v, heads // kv_heads, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(head_dim)
        scores += np.triu(np.full((length, length), -np.inf), 1)
        mixed = np.einsum("hqk,khd->qhd", softmax(scores), v)
        return self.linear(mixed.reshape(length, -1), prefix + "o_proj")

    def glu(self, x, gate, up, down):
        """The gated feed-forward part."""
        return self.linear(silu(self.linear(x, gate)) * self.linear(x, up),
                           down)

    def experts(self, x, prefix, names):
        """The routed experts' sum."""
        c = self.config
        logits = self.linear(x, prefix + "gate")
        k = c["num_experts_per_tok"]
        p = softmax(logits)
        order = np.argsort(-p, axis=-1, kind="stable")
        ranked = np.take_along_axis(logits, order, -1)
        if k < logits.shape[-1]:
            lead = ranked[:, k - 1] - ranked[:, k]
            self.margin = min(self.margin, lead.min())
        out = np.zeros_like(x)
        for row, chosen in enumerate(order[:, :k]):
            weights = p[row, chosen]
            if c.get("norm_topk_prob", c["model_type"] == "mixtral"):
                weights = weights / weights.sum()
            for expert, weight in zip(chosen, weights):
                path = [f"{prefix}experts.{expert}.{n}" for n in names]
                out[row] += weight * self.glu(x[row], *path)
        return out

    def ffn(self, x, layer):
        """Whichever a layer has."""
        names = ("gate_proj", "up_proj", "down_proj")
        prefix = f"model.layers.{layer}.block_sparse_moe."
        if prefix + "gate.weight" in self.weights:
            return self.experts(x, prefix, ("w1", "w3", "w2"))
        prefix = f"model.layers.{layer}.mlp."
        if prefix + "gate.weight" not in self.weights:
            return self.glu(x, *(prefix + name for name in names))
        out = self.experts(x, prefix, names)
        shared = prefix + "shared_expert."
        if shared + "up_proj.weight" in self.weights:
            gate = self.linear(x, prefix + "shared_expert_gate")
            out += self.glu(x, *(shared + name for name in names)) \
                / (1 + np.exp(-gate))
        return out

    def logits(self, tokens):
        """Of all positions of one sequence."""
        x = self.weights["model.embed_tokens.weight"][tokens]
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            x = x + self.attention(
                self.norm(x, prefix + "input_layernorm"),
                prefix + "self_attn.")
            x = x + self.ffn(
                self.norm(x, prefix + "post_attention_layernorm"), layer)
        x = self.norm(x, "model.norm")
        head = "lm_head.weight"
        if self.config.get("tie_word_embeddings"):
            head = "model.embed_tokens.weight"
        return x @ self.weights[head].T


def logits(folder, quantize):
    """Of the folder's sequences."""
    tokens = np.load(os.path.join(folder, "tokens.npy"))
    model = Model(folder, quantize)
    return np.stack([model.logits(sequence) for sequence in tokens])


def check(folder):
    """Largest difference from what transformers computed."""
    expected = np.load(os.path.join(folder, "logits.npy"))
    return np.abs(logits(folder, "fp16") - expected).max()


def main(arguments):
    """See above."""
    if len(arguments) > 1 and arguments[0] == "check":
        for path in arguments[1:]:
            print(f"{path}: {check(path):.2g}")
    elif len(arguments) == 4 and arguments[0] == "logits":
        _, folder, quantize, output = arguments
        np.save(output, logits(folder, quantize).astype(np.float32))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
