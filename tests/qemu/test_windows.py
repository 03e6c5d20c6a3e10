# SPDX-License-Identifier: MIT
"""A model that is large enough for region windows, with them and without.

Its weights are random, a bit over 512 MiB of them. It answers on one board:
with the windows that libnpu makes by itself, one or several; with chunks too
small for any; and in a persistent pool so tight and cut up that no buffer, or
only one of several, can be aligned for one. Tokens and logits are the same
each time.
"""

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

import numpy as np
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
GOLDEN = os.path.join(TREE, "tests", "golden")
MODELS = os.path.join(TREE, "build", "models")
RESULTS = os.path.join(TREE, "build", "results", "qemu")
COMPILER = os.path.join(TREE, "build", "host", "firmware_tools",
                        "npu_compiler", "npu_compiler")
sys.path[:0] = [os.path.join(TREE, "emulator", "vm"), GOLDEN]
# pylint: disable=wrong-import-position
from board import Board  # noqa: E402
import reference  # noqa: E402

PAGE = 4096
WINDOW = 256 << 20
# What QEMU and the emulator take, or making the model, and some for others.
HOST_NEEDS = 4 << 30
QEMU_MOST = 3 << 30

# ---- The model ----

SEED = 8
# Few layers, but wide ones: 131 MiB each in half precision.
SHAPE = {"hidden_size": 2048, "intermediate_size": 9472,
         "num_hidden_layers": 4, "num_attention_heads": 16,
         "num_key_value_heads": 4, "head_dim": 128, "attention_bias": False,
         "tie_word_embeddings": False}
TEXTS = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def make_config():
    """The small model's, but for its size."""
    with open(os.path.join(GOLDEN, "qwen3", "config.json")) as stream:
        return {**json.load(stream), **SHAPE}


def matrices(config):
    """Name, rows and columns of each matrix."""
    hidden, width = config["hidden_size"], config["intermediate_size"]
    q, kv = (config[key] * config["head_dim"] for key in
             ("num_attention_heads", "num_key_value_heads"))
    yield "model.embed_tokens", config["vocab_size"], hidden
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "self_attn.q_proj", q, hidden
        yield prefix + "self_attn.k_proj", kv, hidden
        yield prefix + "self_attn.v_proj", kv, hidden
        yield prefix + "self_attn.o_proj", hidden, q
        yield prefix + "mlp.gate_proj", width, hidden
        yield prefix + "mlp.up_proj", width, hidden
        yield prefix + "mlp.down_proj", hidden, width
    yield "lm_head", config["vocab_size"], hidden


def norms(config):
    """Name and size of each norm."""
    yield "model.norm", config["hidden_size"]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm", config["hidden_size"]
        yield prefix + "post_attention_layernorm", config["hidden_size"]
        yield prefix + "self_attn.q_norm", config["head_dim"]
        yield prefix + "self_attn.k_norm", config["head_dim"]


def make_tensors(config):
    """Matrices keep the scale of what they are multiplied with."""
    random = np.random.Generator(np.random.PCG64(SEED))
    tensors = {name + ".weight": np.ones(size, np.float16)
               for name, size in norms(config)}
    for name, rows, columns in matrices(config):
        values = random.random((rows, columns), np.float32)
        values -= np.float32(0.5)
        values *= np.float32((12 / columns) ** 0.5)
        tensors[name + ".weight"] = values.astype(np.float16)
    return tensors


def model_key():
    """Another one when this file, the small model or the compiler change."""
    key = hashlib.sha256()
    names = [os.path.join(GOLDEN, "qwen3", name)
             for name in ("config.json", *TEXTS)]
    for name in (__file__, COMPILER, *names):
        with open(name, "rb") as stream:
            key.update(stream.read())
    return key.hexdigest()[:16]


def write_model(folder):
    """What Hugging Face would call a model."""
    for text in TEXTS:
        shutil.copy(os.path.join(GOLDEN, "qwen3", text), folder)
    config = make_config()
    with open(os.path.join(folder, "config.json"), "w") as stream:
        json.dump(config, stream)
    reference.write_safetensors(os.path.join(folder, "model.safetensors"),
                                make_tensors(config))


def make_model():
    """Path of the .npu file, in the tree.

    Half a gigabyte, so no other version of it is kept.
    """
    name = f"windows-{model_key()}.npu"
    if not os.path.exists(os.path.join(MODELS, name)):
        os.makedirs(MODELS, exist_ok=True)
        for old in os.listdir(MODELS):
            if re.fullmatch(r"windows-\w+\.npu", old):
                os.unlink(os.path.join(MODELS, old))
        with tempfile.TemporaryDirectory(dir=MODELS) as folder:
            write_model(folder)
            # The file is there when it is complete.
            subprocess.run([COMPILER, "--input", folder, "--output",
                            os.path.join(MODELS, name), "--name", "windows",
                            "--tiles", "1,4"], check=True)
    return f"build/models/{name}"


# ---- The board ----

# What runs there. Each answer is a section that begins with "== NAME".
SCRIPT = r"""
npu=/sys/kernel/debug/npu
windows=/src/build/$M6_BUILD/tests/vm/windows

# answer NAME CHUNK_KIB [POOL]
answer()
{
	echo "== $1"
	echo "$2" >$npu/moe_loader/max_chunk_size_kb &&
		$windows "/src/$model" "/results/$1" $3
	echo "status: $?"
}

answer default 1843200 | tee /tmp/default
answer many 262144
answer none 131072
# What the model takes where nothing is aligned, and a bit.
bytes=$(($(sed -n 's/^pool bytes: //p' /tmp/default) - (256 << 20)))
npu_mem_pool_prealloc --size $((bytes + (32 << 20)))
pool=$(sed -n 's/^pool \([0-9]*\): persistent.*/\1/p' $npu/mem_pool_info)
answer cut_up 1843200 "$pool"
answer part 262144 "$pool"
npu_mem_pool_prealloc --release
echo "== end"
cat $npu/mem_pool_info
"""


class Guest:
    """The guest's output; at each line "waits" of it looks at the device."""

    def __init__(self, control):
        self.control = control
        self.board = None
        self.text = b""
        self.done = 0
        self.statuses = []

    def write(self, data):
        """Some more output."""
        self.text += data
        *lines, rest = self.text[self.done:].split(b"\n")
        self.done = len(self.text) - len(rest)
        for line in lines:
            if line.rstrip() == b"waits":
                self.statuses.append(self.status())
                self.board.signal("CONT")

    def flush(self):
        """All is passed on already."""

    def status(self):
        """What the emulator says."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            client.connect(self.control)
            client.sendall(b"status\n")
            return json.loads(client.makefile().readline())

    def sections(self):
        """What was said, by the names of its sections."""
        parts = re.split(r"^== (\w+)\r?\n",
                         self.text.decode(errors="replace"), flags=re.M)
        return dict(zip(parts[1::2], parts[2::2]))


class Answer:
    """One run of tests/vm/windows."""

    def __init__(self, text, logits, before, after):
        self.text = text
        assert self.number("status") == 0, text
        self.windows = self.number("windows")
        self.pool = self.number("pool")
        self.static_bytes = self.number("static bytes")
        self.device_ns = self.number("device ns")
        self.tokens = self.find(r"^tokens: (.+)$")
        with open(logits, "rb") as stream:
            self.logits = stream.read()
        line = rf"^pool {self.pool}: "
        self.memory = self.find(line + r"(\w+)")
        self.pinned = int(self.find(line + r".*\n  size .* pinned (\d+)"))
        # Of the steps only, not of what defragmenting copied.
        self.hits, self.walks = (after["tlb"][key] - before["tlb"][key]
                                 for key in ("hits", "misses"))

    def find(self, pattern):
        """What the brackets of the pattern hold."""
        found = re.search(pattern, self.text, re.M)
        assert found, (pattern, self.text)
        return found[1]

    def number(self, name):
        """Of a line "name: N"."""
        return int(self.find(rf"^{name}: (\d+)$"))

    def __str__(self):
        return (f"{self.windows} windows, {self.pinned} bytes pinned, "
                f"TLB: {self.hits} hits, {self.walks} walks, "
                f"device {self.device_ns / 1e6:.4f} ms")


def memory_figure(path, key):
    """Bytes of a line "key: N kB"."""
    with open(path) as stream:
        return int(re.search(rf"^{key}:\s*(\d+) kB", stream.read(),
                             re.M)[1]) << 10


def device_failures(dmesg):
    """Of the device or the driver; a buffer that did not fit is none."""
    return [line for line in dmesg.splitlines()
            if re.search(rb"m6npu .*(error|fault|reset|hang|lost)", line, re.I)
            and b" npu_dma_map_error: " not in line]


def boot(model, folder):
    """All answers by their names, the pools at the end, QEMU's peak."""
    guest = Guest(os.path.join(folder, "control"))
    results = os.path.join(folder, "results")
    with Board(arch="arm64", mem="4G", timeout=300, results=results,
               emu_args=f"--control {guest.control}", stdout=guest,
               stderr=guest, command=f"model={model}\n{SCRIPT}") as board:
        guest.board = board
        status = board.wait()
        peak = memory_figure(f"/proc/{board.qemu.pid}/status", "VmHWM")
        complaints = board.kernel_complaints() + device_failures(board.dmesg)
    text = guest.text.decode(errors="replace")
    os.makedirs(RESULTS, exist_ok=True)
    with open(os.path.join(RESULTS, "test_windows.log"), "w") as log:
        log.write(text)
    assert status == 0, text
    assert not complaints, complaints
    sections = guest.sections()
    end = sections.pop("end")
    statuses = iter(guest.statuses)
    answers = {name: Answer(section, os.path.join(results, name),
                            next(statuses, None), next(statuses, None))
               for name, section in sections.items()}
    return answers, end, peak


def check_memory(default, many, none, cut_up, part):
    """Windows where they can be had, and what is behind them pinned."""
    weights = default.static_bytes
    assert weights > 2 * WINDOW
    assert default.windows == 1, default.text
    assert many.windows == -(-weights // WINDOW) >= 2, many.text
    for answer in (default, many):
        assert answer.memory == "private", answer.text
        assert answer.pinned == -(-weights // PAGE) * PAGE, answer.text
    assert (none.windows, none.pinned, none.memory) == (0, 0, "private"), \
        none.text
    for answer in (cut_up, part):
        assert answer.memory == "persistent", answer.text
        assert answer.number("largest free block") < 16 << 20, answer.text
    assert (cut_up.windows, cut_up.pinned) == (0, 0), cut_up.text
    # There is one aligned block, and no second one.
    assert (part.windows, part.pinned) == (1, WINDOW), part.text


def check_answers(answers):
    """To the bit the same, and no rubbish."""
    first, *others = answers
    logits = np.frombuffer(first.logits, np.float32)
    assert np.isfinite(logits).all() and logits.std() > 0.1, logits
    assert len(set(first.tokens.split())) > 1, first.tokens
    for other in others:
        assert other.tokens == first.tokens, (first.text, other.text)
        assert other.logits == first.logits, \
            np.abs(np.frombuffer(other.logits, np.float32) - logits).max()


def check_walks(default, many, none, cut_up):
    """Windows spare the device its page tables; only small buffers are left.

    Even without them most weights lie on large pages, and the end of the last
    buffer, which does not fill one, makes most of the walks.
    """
    for answer in (default, many):
        for other in (none, cut_up):
            assert 10 * answer.walks < other.walks, (str(answer), str(other))
            assert 3 * answer.hits < other.hits, (str(answer), str(other))
            assert answer.device_ns < other.device_ns, \
                (str(answer), str(other))


def test_windows(tmp_path, capsys):
    """The same answer, whatever memory the model is in."""
    available = memory_figure("/proc/meminfo", "MemAvailable")
    if available < HOST_NEEDS:
        pytest.skip(f"{available >> 20} MiB are available here, 4096 needed")
    answers, end, peak = boot(make_model(), str(tmp_path))
    with capsys.disabled():
        print()
        for name, answer in answers.items():
            print(f"# {name}: {answer}")
        print(f"# tokens {answers['none'].tokens}; "
              f"QEMU had {peak >> 20} MiB at most")
    assert list(answers) == ["default", "many", "none", "cut_up", "part"]
    check_memory(**answers)
    check_answers(answers.values())
    del answers["part"]
    check_walks(**answers)
    assert re.search(r"^used: 0$", end, re.M), end
    assert re.search(r"^total: 0$", end, re.M), end
    assert peak < QEMU_MOST
