# SPDX-License-Identifier: MIT
"""The safetensors format: a JSON table of tensors, then their bytes."""

import json
import struct

import numpy as np

TYPES = {"F16": np.float16, "F32": np.float32, "I64": np.int64}
NAMES = {np.dtype(t): n for n, t in TYPES.items()}
ALIGNMENT = 8


def read(path):
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        table = json.loads(file.read(size))
        data = file.read()
    table.pop("__metadata__", None)
    tensors = {}
    for name, entry in table.items():
        begin, end = entry["data_offsets"]
        kind = entry["dtype"]
        if kind == "BF16":
            # numpy has no such type; it is the upper half of a float32.
            raw = np.frombuffer(data[begin:end], np.uint16)
            array = (raw.astype(np.uint32) << 16).view(np.float32)
        else:
            array = np.frombuffer(data[begin:end], TYPES[kind])
        tensors[name] = array.reshape(entry["shape"])
    return tensors


def write(path, tensors):
    table, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, array in sorted(tensors.items()):
        table[name] = dict(dtype=NAMES[array.dtype], shape=list(array.shape),
                           data_offsets=[offset, offset + array.nbytes])
        offset += array.nbytes
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, array in sorted(tensors.items()):
            file.write(np.ascontiguousarray(array).tobytes())
