#!/bin/sh
# SPDX-License-Identifier: MIT
# SIGKILL in the middle of inference leaves no trace, and the next one serves.
. "${0%/*}/tap.inc"

npu_pci >/dev/null || { echo "1..0 # SKIP no M6 NPU"; exit 77; }
model=/src/build/models/demo.npu
info=/sys/kernel/debug/npu/mem_pool_info
log=/tmp/kill-server.log

used() { sed -n 's/^total: //p; s/^used: //p' $info; }
before=$(used)
unchanged() { [ "$(used)" = "$before" ]; }
healthy() { wget -q -O /dev/null http://127.0.0.1:8090/health; }

start()
{
	npu_server --model $model --host 127.0.0.1:8090 >$log 2>&1 &
	pid=$!
	until_true 120 healthy
}

# A long answer, asked for in the background.
ask()
{
	wget -q -O /tmp/kill-answer --post-data \
		'{"prompt":"<|im_start|>user\nHello<|im_end|>\n","temperature":2,"max_tokens":800,"stream":true}' \
		http://127.0.0.1:8090/v1/completions &
	asker=$!
}

under_way() { grep -q data: /tmp/kill-answer 2>/dev/null; }

i=1
while [ $i -le 3 ]; do
	rm -f /tmp/kill-answer
	ok "server starts ($i)" start
	ask
	ok "an answer is under way" until_true 60 under_way
	kill -KILL $pid
	wait $pid 2>/dev/null
	kill $asker 2>/dev/null
	wait $asker 2>/dev/null
	ok "mem_pool_info is as before" until_true 60 unchanged
	i=$((i + 1))
done

ok "it starts once more" start
ends()
{
	kill -TERM $pid
	wait $pid
}
ok "and ends by SIGTERM with status 0" ends
ok "leaving nothing" until_true 30 unchanged
finish
