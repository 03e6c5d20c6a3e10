# SPDX-License-Identifier: MIT
"""Compares model.py with logits that HF transformers computed.

The folder holds a qwen3_moe model, tokens.npy and logits.npy. Without an
argument it is ref/qwen3moe below $M6_DATA or ../shared/data; if that is
not there, the check is skipped with exit status 77.
"""

import argparse
import os
import pathlib
import sys

import numpy as np
import torch

import hf_folder

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 2e-4
SKIPPED = 77


def default_folder():
    data = os.environ.get("M6_DATA") or ROOT.parent / "shared" / "data"
    return pathlib.Path(data) / "ref" / "qwen3moe"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path,
                        default=default_folder())
    args = parser.parse_args()
    if not (args.folder / "logits.npy").exists():
        print(f"skipped: no reference logits in {args.folder.name}; "
              "set M6_DATA to the folder of the test data")
        return SKIPPED
    want = np.load(args.folder / "logits.npy")
    tokens = torch.from_numpy(np.load(args.folder / "tokens.npy").astype("i8"))
    with torch.no_grad():
        have = hf_folder.load(args.folder)(tokens.reshape(-1, tokens.shape[-1]))
    worst = np.abs(have.numpy().reshape(want.shape) - want).max()
    print(f"largest difference of {want.size} logits: {worst:.2e}")
    return 0 if worst < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
