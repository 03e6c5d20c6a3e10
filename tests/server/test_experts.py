# SPDX-License-Identifier: MIT
"""Experts that come and go, read from a disk while the server answers.

The demo has 144 experts of 24 KiB, of which a token takes four.
"""

import re

import pytest

from conftest import MODEL, Served, at_once
from test_demo import chat, golden


@pytest.mark.parametrize("budget,count,options", [
    ("96K", 4, ""),				# the least
    ("864K", 100, ""),				# a quarter
    ("1728K", 8, "--npu-disable-expert-cache"),
])
def test_budget(budget, count, options, server_log):
    """The reference's answers, from one client and from four."""
    entries = golden()[:count]
    with Served(f"--max-concurrent 4 --expert-budget {budget} {options}",
                server_log, model="/mnt/demo.npu",
                before=f"cp {MODEL} /mnt/demo.npu && sync",
                after="echo router cache:; "
                      "cat /sys/kernel/debug/npu/router_cache",
                disk="256M") as served:
        texts = [chat(served, entry) for entry in entries]
        assert texts == [entry["text"] for entry in entries]
        for i in range(0, len(entries), 4):
            part = entries[i:i + 4]
            texts = at_once([lambda e=e: chat(served, e) for e in part])
            assert texts == [entry["text"] for entry in part]
        figures = served.metrics()
        for name in sorted(figures):
            if "expert" in name or "router" in name:
                print(f"{name} {figures[name]:g}")
        size = figures["npu_expert_places_bytes"]
        assert size == int(budget[:-1]) << 10
        assert figures["npu_experts_resident"] == figures["npu_expert_places"]
        missed = figures["npu_expert_missed_total"]
        assert missed == figures["npu_expert_evictions_total"] > 0
        assert figures["npu_expert_read_bytes_total"] > size
        assert figures["npu_expert_stall_seconds_total"] > 0
        # The least holds one layer's: nothing is there when it is needed.
        ratio = figures["npu_expert_hit_ratio"]
        assert ratio < 0.1 if budget == "96K" else 0.1 < ratio < 1
    assert served.status == 0
    assert not served.board.kernel_complaints()
    server_log.flush()
    with open(server_log.name, "rb") as log:
        told = log.read().decode(errors="replace")
    assert re.search(r"experts: \d+ faults, \d+ loaded", told)
    assert "router cache:" in told
