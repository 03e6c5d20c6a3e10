# SPDX-License-Identifier: MIT
"""Experts that come and go, read from a disk while the server answers.

The demo has 144 experts of 24 KiB, of which a token takes four in each of six
layers.
"""

import re

from conftest import MODEL, Served, at_once
from test_demo import chat, golden

ON_DISK = "/mnt/demo.npu"
COPY = f"cp {MODEL} {ON_DISK} && sync"
# Budget, how many of the golden answers, other options.
CASES = [
    ("96K", 4, ""),				# the least
    ("864K", 36, ""),				# a quarter
    ("864K", 8, "--npu-expert-preload-threshold 0.95"),
    ("864K", 8, "--npu-expert-preload-threshold off"),
    ("864K", 8, "--dynamic-expert-threshold 0.3,0.7"),
    ("1728K", 8, "--npu-disable-expert-cache"),
    ("1728K", 8, "--npu-experts-on-demand"),
]


def ask_all(served, entries):
    """The reference's answers, from one client and from four."""
    texts = [chat(served, entry) for entry in entries]
    assert texts == [entry["text"] for entry in entries]
    for i in range(0, len(entries), 4):
        part = entries[i:i + 4]
        texts = at_once([lambda e=e: chat(served, e) for e in part])
        assert texts == [entry["text"] for entry in part]


def check_counts(figures):
    """Counts that depend on each other."""
    uses, hits, missed, hints, read, used = (
        figures[f"npu_expert_{name}_total"] for name in (
            "uses", "hits", "missed", "hints", "prefetches",
            "prefetches_used"))
    assert 0 < missed <= uses
    assert 0 <= hits <= uses
    assert figures["npu_expert_hit_ratio"] == round(hits / uses, 9)
    assert used <= read <= hints
    faults = figures["npu_expert_faults_total"]
    # Who waits for several looks for all of them again when one has come.
    assert missed <= faults
    assert faults == sum(value for name, value in figures.items()
                         if name.startswith("npu_expert_layer_faults_total"))
    assert figures["npu_router_cache_misses_total"] == sum(
        value for name, value in figures.items()
        if name.startswith("npu_router_cache_layer_misses_total"))


def check_budget(figures, budget, options):
    """After many answers."""
    size = figures["npu_expert_places_bytes"]
    assert size == int(budget[:-1]) << 10
    assert figures["npu_experts_resident"] <= figures["npu_expert_places"]
    assert figures["npu_expert_evictions_total"] > 0
    assert figures["npu_expert_read_bytes_total"] > size
    assert figures["npu_expert_stall_seconds_total"] > 0
    # The least holds one layer's: nothing is there when it is needed.
    ratio = figures["npu_expert_hit_ratio"]
    assert ratio < 0.1 if budget == "96K" else 0.1 < ratio < 1
    hits = figures["npu_router_cache_hits_total"]
    if "disable-expert-cache" in options:
        assert hits == 0
    elif budget != "96K":
        assert hits > 0


def check_threshold(figures, options):
    """The threshold is what was asked for, and is kept to."""
    threshold = figures["npu_expert_prefetch_threshold"]
    hints = figures["npu_expert_hints_total"]
    if "off" in options:
        assert threshold == float("inf")
        assert hints == figures["npu_expert_prefetches_total"] == 0
    elif "dynamic" in options:
        assert 0.3 <= threshold <= 0.7
        assert hints > 0
    else:
        assert threshold == (0.95 if "0.95" in options else 0.85)


def show(options, figures):
    """For whoever reads the log."""
    print(f"\n{options}")
    for name in sorted(figures):
        if ("expert" in name or "router" in name) and "{" not in name:
            print(f"{name} {figures[name]:g}")


def test_budget(server_log):
    """Any budget and any guessing, and the answers are the reference's."""
    options = [f"--max-concurrent 4 --expert-budget {budget} {more}"
               for budget, _, more in CASES]
    with Served(options, server_log, model=ON_DISK, before=COPY,
                after="echo router cache:; "
                      "cat /sys/kernel/debug/npu/router_cache",
                disk="256M") as served:
        for i, (budget, count, more) in enumerate(CASES):
            if i:
                served.next()
            ask_all(served, golden()[:count])
            figures = served.metrics()
            show(options[i], figures)
            check_counts(figures)
            check_budget(figures, budget, more)
            check_threshold(figures, more)
    assert served.status == 0
    assert not served.board.kernel_complaints()
    server_log.flush()
    with open(server_log.name, "rb") as log:
        told = log.read().decode(errors="replace")
    assert len(re.findall(r"experts: \d+ faults in \d+ uses, \d+ loaded",
                          told)) == len(CASES)
    debugfs = told[told.index("router cache:"):]
    for name in ("hits", "misses", "faults", "stalled_us"):
        assert re.search(rf"^{name}: [1-9]\d*\r?$", debugfs, re.M), name
