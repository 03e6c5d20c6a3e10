#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""npu_compiler from outside: what it refuses, and what it writes.

Usage: test_cli.py NPU_COMPILER TREE
"""

import ctypes
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess

import numpy as np

from harness import COMPILER, TREE, Folder, finish, inspect, ok, run


def header_of(data):
    """The JSON header of a safetensors file, and what comes behind it."""
    size, = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + size]), data[8 + size:]


def with_header(header, rest):
    """A safetensors file again."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + rest


# Refusals

NORM = "model.norm.weight"


def spoil_entry(**values):
    """A change to the entry of one tensor."""
    return lambda header: header[NORM].update(values)


def test_safetensors():
    """Files that are not what they should be."""
    cases = [
        ("a tensor beyond the file", "outside the file",
         spoil_entry(data_offsets=[0, 1 << 40])),
        ("a tensor that ends before it begins", "outside the file",
         spoil_entry(data_offsets=[128, 0])),
        ("offsets that are text", "no data_offsets",
         spoil_entry(data_offsets=["0", "128"])),
        ("offsets below zero", "no data_offsets",
         spoil_entry(data_offsets=[-128, 0])),
        ("a shape of another size", "is not what its shape",
         spoil_entry(shape=[65])),
        ("a shape that overflows", "impossible shape",
         spoil_entry(shape=[1 << 62, 1 << 62])),
        ("a shape that is no list", "no shape", spoil_entry(shape=64)),
        ("too many dimensions", "no shape", spoil_entry(shape=[1] * 5)),
        ("an unknown dtype", "unknown dtype", spoil_entry(dtype="F17")),
        ("a dtype that is no weight's", "is I16: only F32, F16 and BF16",
         spoil_entry(dtype="I16")),
        ("a tensor that is missing", f"{NORM} is missing",
         lambda header: header.pop(NORM)),
        ("a tensor too many", "model.extra.weight has no place",
         lambda header: header.update({"model.extra.weight": header[NORM]})),
        ("a matrix transposed", "where config.json means 64x64",
         lambda header: header[
             "model.layers.0.self_attn.q_proj.weight"].update(
                 shape=[32, 128])),
        ("an entry that is no object", "unknown dtype",
         lambda header: header.update({NORM: 5})),
    ]
    for name, pattern, change in cases:
        with Folder() as folder:
            header, rest = header_of(folder.read("model.safetensors"))
            change(header)
            folder.write("model.safetensors", with_header(header, rest))
            folder.refused(name, pattern)


def test_safetensors_files():
    """The same, below the level of JSON."""
    with Folder() as folder:
        good = folder.read("model.safetensors")
        header, rest = header_of(good)
        for name, pattern, data in [
                ("an empty file", "no file that can be mapped", b""),
                ("four bytes", "too short", b"1234"),
                ("a header longer than the file", "header's length",
                 struct.pack("<Q", len(good)) + good[8:]),
                ("a header of 2^63 bytes", "header's length",
                 struct.pack("<Q", 1 << 63) + good[8:]),
                ("a header that is no JSON", "not valid JSON",
                 with_header(b"{\"a\": ", rest)),
                ("a header that is a list", "not a JSON object",
                 with_header(b"[]", rest)),
                ("a deep header", "not (valid JSON|a JSON object)",
                 with_header(b"[" * 100000, rest)),
                ("a file cut short", "outside the file", good[:-1000])]:
            folder.write("model.safetensors", data)
            folder.refused(name, pattern)
        name = json.dumps(header).encode().replace(
            b"\"model.norm.weight\"", b"\"model.norm\\u0000weight\"")
        folder.write("model.safetensors", with_header(name, rest))
        folder.refused("a name with a NUL in it", "impossible name")
        os.unlink(folder.name("model.safetensors"))
        folder.refused("no weights", "neither model.safetensors")


def shard(folder):
    """Splits model.safetensors in two with an index."""
    tensors = folder.tensors()
    names = sorted(tensors)
    halves = {"model-1.safetensors": names[::2],
              "model-2.safetensors": names[1::2]}
    for file, part in halves.items():
        folder.save({name: tensors[name] for name in part}, file)
    os.unlink(folder.name("model.safetensors"))
    index = {"weight_map": {name: file for file, part in halves.items()
                            for name in part}}
    folder.write("model.safetensors.index.json", json.dumps(index).encode())


def test_shards():
    """model.safetensors.index.json."""
    with Folder() as folder:
        assert not folder.compile().returncode
        with open(folder.output, "rb") as stream:
            single = stream.read()
        shard(folder)
        result = folder.compile()
        with open(folder.output, "rb") as stream:
            ok(not result.returncode and stream.read() == single,
               "two shards make what one file makes", result.stderr)
        os.unlink(folder.output)
        index = "model.safetensors.index.json"
        folder.write("model.safetensors", b"")
        folder.refused("not the single file, but an index beside it",
                       "model.safetensors is no file")
        os.unlink(folder.name("model.safetensors"))
        good = folder.read(index)

        def rename(value):
            value["weight_map"][NORM] = "../model-1.safetensors"

        folder.edit(index, rename)
        folder.refused("a shard in another folder", "same folder")
        folder.write(index, good)
        folder.edit(index, lambda v: v["weight_map"].update(
            {"model.more.weight": "model-1.safetensors"}))
        folder.refused("an index that promises more", "promises tensor")
        folder.write(index, good)
        shutil.copy(folder.name("model-1.safetensors"),
                    folder.name("model-3.safetensors"))
        folder.edit(index, lambda v: v["weight_map"].update(
            {"x": "model-3.safetensors"}))
        folder.refused("a tensor in two shards", "is there twice")
        folder.write(index, b"{}")
        folder.refused("an index without a map", "no weight_map")


def test_values():
    """Numbers that 16 bits can't hold."""
    name = "model.layers.1.self_attn.q_proj.weight"
    for value, dtype in ((np.nan, np.float16), (np.inf, np.float16),
                         (1e5, np.float32)):
        with Folder() as folder:
            tensors = folder.tensors()
            tensors[name] = tensors[name].astype(dtype)
            tensors[name][3, 5] = value
            folder.save(tensors)
            folder.refused(f"a weight of {value}",
                           f"{name} holds a value that is no number",
                           "--quantize", "int4")


def test_config():
    """Models that would run wrong."""
    yarn = {"rope_type": "yarn", "factor": 4.0}
    cases = [
        ("an unknown architecture", "gpt9 is not supported; supported: llama",
         {"model_type": "gpt9"}),
        ("a classifier", "is a Qwen3MoeForSequenceClassification",
         {"architectures": ["Qwen3MoeForSequenceClassification"]}),
        ("no model_type", "no model_type", {"model_type": None}),
        ("an unknown activation", "hidden_act relu", {"hidden_act": "relu"}),
        ("yarn", "rope type yarn", {"rope_scaling": yarn}),
        ("yarn in the new spelling", "rope type yarn",
         {"rope_parameters": yarn}),
        ("half of llama3's rope", "incomplete",
         {"rope_scaling": {"rope_type": "llama3", "factor": 8}}),
        ("a stretched rope of no type", "lack a rope_type",
         {"rope_scaling": {"factor": 2.0}}),
        ("a rope for each type of layer", "lack a rope_type",
         {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}),
        ("rope parameters of both spellings", "contradict each other",
         {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"},
          "rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
        ("a rotation of half of each head, in the scaling",
         "partial_rotary_factor",
         {"rope_scaling": {"rope_type": "default",
                           "partial_rotary_factor": 0.5}}),
        ("a rotation of half of each head", "partial_rotary_factor",
         {"partial_rotary_factor": 0.5}),
        ("no theta", "lacks rope_theta", {"rope_theta": None}),
        ("a sliding window", "--context 16",
         {"use_sliding_window": True, "sliding_window": 16}),
        ("layers of an unknown type", "chunked_attention",
         {"layer_types": ["full_attention", "chunked_attention"]}),
        ("quantized weights", "already quantized",
         {"quantization_config": {"quant_method": "awq"}}),
        ("softcapping", "final_logit_softcapping",
         {"final_logit_softcapping": 30.0}),
        ("no vocabulary", "lacks vocab_size", {"vocab_size": None}),
        ("another vocabulary", "belong together", {"vocab_size": 256}),
        ("a negative size", "hidden_size is not an integer",
         {"hidden_size": -64}),
        ("a huge size", "hidden_size is not an integer",
         {"hidden_size": 1 << 31}),
        ("a size in text", "hidden_size is not an integer",
         {"hidden_size": "64"}),
        ("heads that do not divide", "no multiple of num_key_value_heads",
         {"num_key_value_heads": 3}),
        ("odd heads", "is odd", {"head_dim": 31}),
        ("more layers than tensors", "layers.2.input_layernorm.weight is mis",
         {"num_hidden_layers": 3}),
        ("no layer with experts", "gives 0 layers experts",
         {"num_hidden_layers": 1}),
        ("no epsilon", "lacks rms_norm_eps", {"rms_norm_eps": None}),
        ("more experts a token than experts", "num_experts_per_tok 9",
         {"num_experts_per_tok": 9}),
        ("more experts a token than the NPU routes to", "from 1 to 64",
         {"num_experts": 80, "num_experts_per_tok": 65}),
        ("weights of experts unknown", "lacks norm_topk_prob",
         {"norm_topk_prob": None}),
        ("no experts", "lacks num_experts", {"num_experts": None}),
        ("a dense layer that is none", "mlp_only_layers",
         {"mlp_only_layers": [7]}),
        ("an end token beyond the vocabulary", "eos_token_id",
         {"eos_token_id": 128}),
    ]
    for name, pattern, change in cases:
        with Folder() as folder:
            folder.edit("config.json", lambda c, d=change: c.update(d))
            folder.refused(name, pattern)
    with Folder("llama") as folder:
        folder.edit("config.json", lambda c: c.update(num_hidden_layers=1))
        folder.refused("fewer layers than tensors", "has no place")
    with Folder() as folder:
        folder.write("config.json", b"{")
        folder.refused("a config that is no JSON", "not valid JSON")
        os.unlink(folder.name("config.json"))
        folder.refused("no config", "config.json is missing")


def test_windows():
    """Sliding windows that the config does not speak of."""
    with Folder("qwen2") as folder:
        folder.edit("config.json", lambda c: c.update(sliding_window=16))
        result = folder.compile()
        ok(not result.returncode, "Qwen's window counts if it is used",
           result.stderr)
    with Folder("llama") as folder:
        folder.edit("config.json", lambda c: c.update(
            architectures=["MistralForCausalLM"], model_type="mistral",
            max_position_embeddings=8192))
        folder.refused("Mistral's own window", "--context 4096")
        folder.edit("config.json", lambda c: c.update(sliding_window=None))
        result = folder.compile()
        ok(not result.returncode, "a Mistral without a window",
           result.stderr)


def test_tied():
    """A head in a file although it is the embedding."""
    name = "model.embed_tokens.weight"
    with Folder("qwen2") as folder:
        folder.compile()
        whole = contents(folder.output)
        tensors = folder.tensors()
        tensors["lm_head.weight"] = tensors[name]
        folder.save(tensors)
        result = folder.compile()
        ok(not result.returncode and contents(folder.output) == whole,
           "a repeated embedding", result.stderr)
        tensors["lm_head.weight"] = tensors[name] * np.float16(2)
        folder.save(tensors)
        folder.refused("a head that is not the embedding",
                       "lm_head.weight is not the embedding")


def test_flat_biases():
    """Vectors that are stored as matrices of one row."""
    with Folder("qwen2") as folder:
        folder.compile()
        whole = contents(folder.output)
        folder.save({name: tensor.reshape(1, -1) if name.endswith(".bias")
                     else tensor for name, tensor in folder.tensors().items()})
        result = folder.compile()
        ok(not result.returncode and contents(folder.output) == whole,
           "biases of two dimensions", result.stderr)


def test_tokenizer():
    """The tokenizer's files."""
    with Folder() as folder:
        folder.write("tokenizer.json", b"{}")
        folder.refused("a tokenizer without a model", "not a tokenizer")
        os.unlink(folder.name("tokenizer.json"))
        folder.refused("no tokenizer", "tokenizer.json is missing")
    with Folder() as folder:
        folder.edit("tokenizer_config.json",
                    lambda v: v.update(chat_template="{{ messages }}"))
        folder.edit("generation_config.json",
                    lambda v: v.update(pad_token_id=-1))
        folder.edit("config.json", lambda v: v.update(pad_token_id=-1))
        result = folder.compile()
        ok(not result.returncode and "of no known format" in result.stderr,
           "an unknown chat format is a warning", result.stderr)
        ok("chat" not in inspect(folder.output)["metadata"],
           "and no chat format in the file")
        ok(inspect(folder.output)["metadata"]["tokens"]["pad"] is None,
           "a padding token of -1 is none")
        folder.write("chat_template.jinja", b"<|im_start|>...<|im_end|>")
        result = folder.compile()
        ok(inspect(folder.output)["metadata"]["chat"]["name"] == "chatml",
           "chat_template.jinja counts", result.stderr)


def test_options():
    """The command line."""
    with Folder() as folder:
        for name, pattern, *options in [
                ("more router entries than there are",
                 "has 128 entries; leave the option out",
                 "--expert-cache-size", 129),
                ("no router entries", "from 1 to", "--expert-cache-size", 0),
                ("an unknown target", "--target m7", "--target", "m7"),
                ("an unknown quantization", "--quantize q2",
                 "--quantize", "q2"),
                ("an unknown compression", "--compression xz",
                 "--compression", "xz"),
                ("tiles that fall", "must rise", "--tiles", "4,1"),
                ("a tile of none", "from 1 to 1024", "--tiles", "0"),
                ("an empty tile", "from 1 to 1024", "--tiles", "1,,4"),
                ("a context beyond the model's", "64 positions",
                 "--context", 65),
                ("experts larger than a chunk", "an expert takes 12 KiB",
                 "--max-chunk-kb", 8),
                ("a chunk below a page", "from 4 to", "--max-chunk-kb", 3),
                ("an unknown option", "--frobnicate", "--frobnicate"),
                ("a missing value", "value is missing", "--tiles"),
                ("something more", "is not an option", "more")]:
            folder.refused(name, pattern, *options)
        result = run("--input", folder.source)
        ok(result.returncode == 1 and "--output is missing" in result.stderr,
           "refused: no --output", result.stderr)
        result = run("--input", folder.source, "--output",
                     os.path.join(folder.path, "no", "such.npu"))
        ok(result.returncode == 1 and "cannot write" in result.stderr,
           "refused: no folder to write to", result.stderr)
        fifo = os.path.join(folder.path, "fifo")
        os.mkfifo(fifo)
        for output in fifo, folder.source, "":
            result = run("--input", folder.source, "--output", output)
            ok(result.returncode == 1 and "is not a file" in result.stderr and
               not os.path.isfile(fifo), f"refused: --output '{output}'",
               result.stderr)
        result = run("--input", folder.name("model.safetensors"),
                     "--output", folder.output)
        ok(result.returncode == 1 and "is not a folder" in result.stderr,
           "refused: a file as input", result.stderr)
    with Folder() as folder:
        result = folder.compile("--progress")
        ok("compiling: 100%" in result.stderr, "--progress", result.stderr)
        ok(not folder.compile().stderr, "no progress into a pipe")
    for option in ("--help", "--version"):
        result = run(option)
        ok(not result.returncode and result.stdout and not result.stderr,
           option)


def test_documents():
    """Help, man page and completion know the same options."""
    with open(os.path.join(TREE, "firmware_tools", "npu_compiler",
                           "options.c"), encoding="utf-8") as stream:
        table = stream.read().split("long_options[]")[1].split("};")[0]
    options = set(re.findall(r'{ "([a-z-]+)",', table))
    for name, pattern, path in [
            ("the man page", r"Fl -([a-z-]+)",
             "Documentation/npu_compiler.1"),
            ("the completion", r"--([a-z][a-z-]+)",
             "firmware_tools/npu_compiler/npu_compiler.bash")]:
        with open(os.path.join(TREE, path), encoding="utf-8") as stream:
            found = set(re.findall(pattern, stream.read()))
        ok(found == options, name + " knows every option",
           found ^ options)
    found = set(re.findall(r"--([a-z][a-z-]+)", run("--help").stdout))
    ok(found == options, "--help knows every option", found ^ options)


def limit_file_size():
    """Runs in the child: files end at 64 KiB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))


def test_full_disk():
    """A write that fails leaves the old file and nothing else."""
    with Folder() as folder:
        with open(folder.output, "wb") as stream:
            stream.write(b"old")
        folder.refused("a full disk", "cannot write",
                       preexec_fn=limit_file_size, restore_signals=False)
        with open(folder.output, "rb") as stream:
            ok(stream.read() == b"old", "and the old file is still there")


def compile_unheard(folder, **options):
    """Status of a run whose stderr, where progress goes, nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run([COMPILER, "--input", folder.source, "--output",
                             folder.output, "--progress"], stderr=writer,
                            check=False, **options)
    os.close(writer)
    return result.returncode


def test_signals():
    """A signal leaves nothing behind, and one that is ignored stays so."""
    with Folder() as folder:
        status = compile_unheard(folder)
        ok(status == 128 + signal.SIGPIPE and
           os.listdir(folder.path) == ["model"], "ended by a signal",
           f"status {status}: {os.listdir(folder.path)}")
        # Python's own SIGPIPE is ignored.
        status = compile_unheard(folder, restore_signals=False)
        ok(not status and not run("--verify", folder.output).returncode,
           "an ignored signal", f"status {status}")


# What it writes

def stored(path, section):
    """A section as it lies in the file."""
    with open(path, "rb") as stream:
        stream.seek(section["offset"])
        return stream.read(section["stored_bytes"])


def decoded(path, section):
    """By the compressors' own programs and libraries."""
    data = stored(path, section)
    if section["encoding"] == "zstd":
        return subprocess.run(["zstd", "-dc"], input=data, check=True,
                              capture_output=True).stdout
    if section["encoding"] == "lz4":
        room = ctypes.create_string_buffer(section["loaded_bytes"])
        got = ctypes.CDLL("liblz4.so.1").LZ4_decompress_safe(
            data, room, len(data), len(room))
        return room.raw if got == len(room) else None
    return data


def contents(path):
    """Everything that reaches the device, decoded."""
    described = inspect(path)
    region = bytearray(described["runtime"]["weights_bytes"])
    experts = {}
    for section in described["sections"]:
        data = decoded(path, section)
        if section["type"] == "static":
            region[section["dest"]:section["dest"] + len(data)] = data
        elif section["type"] == "expert":
            experts[section["layer"], section["expert"]] = data
    return bytes(region), experts


def test_repeatable():
    """The same bytes, however it is run."""
    files = []
    with Folder() as folder:
        for quantize in ("fp16", "int8", "int4"):
            for threads in (1, 3):
                folder.compile("--quantize", quantize, "--threads", threads,
                               "--compression", "zstd", cwd="/")
                with open(folder.output, "rb") as stream:
                    files.append(stream.read())
            ok(files[-1] == files[-2], f"{quantize}: the same bytes again")
        mode = os.stat(folder.output).st_mode & 0o777
        mask = os.umask(0)
        os.umask(mask)
        ok(mode == 0o666 & ~mask, "permissions by umask", oct(mode))


def test_chunks():
    """Sections no larger than asked for, and the same contents."""
    with Folder() as folder:
        folder.compile()
        whole = contents(folder.output)
        folder.compile("--max-chunk-kb", 12)
        described = inspect(folder.output)
        static = [s for s in described["sections"] if s["type"] == "static"]
        ok(len(static) > 5 and all(s["loaded_bytes"] <= 12288 and
                                   s["dest"] % 4096 == 0 for s in static),
           f"{len(static)} static sections of at most 12 KiB")
        ok(contents(folder.output) == whole, "with the same contents")
        ok(not run("--verify", folder.output).returncode, "and good")


def test_compression():
    """What is compressed can be decompressed by others."""
    with Folder() as folder:
        # Random weights don't shrink; these do.
        tensors = {name: np.round(tensor.astype(np.float32) * 4)
                   .astype(np.float16) / np.float16(4)
                   for name, tensor in folder.tensors().items()}
        folder.save(tensors)
        folder.compile()
        whole = contents(folder.output)
        size = os.path.getsize(folder.output)
        for kind in ("lz4", "zstd"):
            result = folder.compile("--compression", kind)
            used = {s["encoding"] for s in inspect(folder.output)["sections"]}
            ok(used == {"raw", kind}, f"{kind}: used", result.stderr)
            ok(contents(folder.output) == whole, f"{kind}: decodes")
            ok(os.path.getsize(folder.output) < size, f"{kind}: smaller")
            ok(not run("--verify", folder.output).returncode, f"{kind}: good")


def test_inputs():
    """F32 and BF16 weights; F16 ones arrive bit by bit."""
    with Folder("qwen2") as folder:
        tensors = folder.tensors()
        folder.compile()
        whole = contents(folder.output)
        table = tensors["model.embed_tokens.weight"].tobytes()
        ok(whole[0][:len(table)] == table, "F16 weights arrive as they are")
        folder.save({name: tensor.astype(np.float32)
                     for name, tensor in tensors.items()})
        folder.compile()
        ok(contents(folder.output) == whole, "F32 weights arrive as F16")
        header, offset, data = {}, 0, b""
        rounded = {}
        for name, tensor in tensors.items():
            bits = tensor.astype(np.float32).view(np.uint32) >> 16
            rounded[name] = (bits << 16).view(np.float32)
            part = bits.astype(np.uint16).tobytes()
            header[name] = {"dtype": "BF16", "shape": list(tensor.shape),
                            "data_offsets": [offset, offset + len(part)]}
            data += part
            offset += len(part)
        text = json.dumps(header).encode()
        # An odd header length, so that nothing in the file is aligned.
        text += b" " * (1 - len(text) % 2)
        folder.write("model.safetensors", with_header(text, data))
        result = folder.compile()
        got = contents(folder.output)
        folder.save(rounded)
        folder.compile()
        ok(contents(folder.output) == got, "BF16 weights arrive as F16",
           result.stderr)


def test_inspect():
    """Both forms of --inspect."""
    with Folder() as folder:
        folder.compile("--quantize", "int4", "--name", "A \u00e9 model",
                       "--tiles", "1,8", "--context", 32,
                       "--expert-cache-size", 100)
        described = inspect(folder.output)
        runtime, metadata = described["runtime"], described["metadata"]
        ok(metadata["name"] == "A \u00e9 model" and
           metadata["architecture"] == "qwen3_moe" and
           metadata["quantization"] == "int4", "what it is")
        ok(runtime["max_tile"] == 8 and runtime["max_out"] == 8 and
           runtime["context_length"] == 32 and
           runtime["router_entries"] == 100 and
           runtime["expert_layers"] == 1 and runtime["experts"] == 4,
           "runtime", runtime)
        ok(metadata["tokens"] == {"bos": None, "eos": [127], "pad": 125,
                                  "add_bos": False}, "tokens",
           metadata["tokens"])
        user = metadata["chat"]["roles"]["user"]
        ok(user == {"prefix": "<|im_start|>user\n",
                    "suffix": "<|im_end|>\n"}, "chat", user)
        ok("time" not in json.dumps(metadata["provenance"]),
           "no time in the provenance")
        kinds = [s["type"] for s in described["sections"]]
        ok(kinds.count("expert") == 4 and kinds.count("commands") == 2,
           "sections", kinds)
        lists = [s for s in described["sections"] if s["type"] == "commands"]
        ok(all(s["operations"]["MOE_FFN"] == 1 and
               s["operations"]["ATTENTION"] == 2 for s in lists),
           "operations", lists)
        result = run("--inspect", folder.output)
        ok(not result.returncode and "expert.down" in result.stdout and
           "\x1b" not in result.stdout, "as text")
    with Folder("llama") as folder:
        result = folder.compile("--quantize", "int4")
        ok("2 matrices stay fp16" in result.stderr,
           "rows that make no blocks are told of", result.stderr)
        chat = inspect(folder.output)["metadata"]["chat"]
        ok(chat["name"] == "llama3" and chat["bos"], "llama3's chat format")


def flip(path, offset):
    """One bit of a file."""
    with open(path, "r+b") as stream:
        stream.seek(offset)
        byte = stream.read(1)[0]
        stream.seek(offset)
        stream.write(bytes([byte ^ 0x10]))


def altered(path, name, pattern, offset):
    """--verify finds it, names it, and is content once it is undone."""
    flip(path, offset)
    result = run("--verify", path)
    ok(result.returncode == 1 and re.search(pattern, result.stderr) and
       not result.stdout, f"altered: {name}", result.stderr)
    flip(path, offset)


def test_verify():
    """Every part of a file."""
    with Folder() as folder:
        folder.compile("--tiles", "1,4", "--compression", "zstd")
        path = folder.output
        result = run("--verify", path)
        ok(not result.returncode and "good" in result.stdout, "a good file",
           result.stderr)
        sections = inspect(path)["sections"]
        for kind in ("metadata", "tokenizer", "commands", "static", "expert"):
            of_kind = [s for s in sections if s["type"] == kind]
            for section in (of_kind[0], of_kind[-1]):
                middle = section["offset"] + section["stored_bytes"] // 2
                altered(path, kind, kind, middle)
        gap = sections[0]["offset"] + sections[0]["stored_bytes"]
        altered(path, "a gap", "zero", gap)
        altered(path, "the magic", "magic", 0)
        altered(path, "the header", "header", 100)
        altered(path, "the header's rest", "header", 4000)
        altered(path, "the section table", "section table", 4096 + 64 * 3 + 20)
        result = run("--verify", path)
        ok(not result.returncode, "and good again", result.stderr)
        size = os.path.getsize(path)
        for cut in (0, 100, 4096, size // 2, size - 1):
            with open(path, "rb") as stream:
                data = stream.read(cut)
            with open(path + ".cut", "wb") as stream:
                stream.write(data)
            result = run("--verify", path + ".cut")
            ok(result.returncode == 1 and len(
                result.stderr.strip().split("\n")) == 1,
               f"cut at {cut}", result.stderr)
        result = run("--inspect", path + ".cut")
        ok(result.returncode == 1 and not result.stdout,
           "--inspect refuses it too")


for test in (test_safetensors, test_safetensors_files, test_shards,
             test_values, test_config, test_windows, test_tied,
             test_flat_biases, test_tokenizer, test_options, test_documents,
             test_full_disk, test_signals, test_repeatable, test_chunks,
             test_compression,
             test_inputs, test_inspect, test_verify):
    test()
finish()
