#!/bin/sh
# SPDX-License-Identifier: MIT
# shellcheck shell=busybox
#
# A persistent pool that has just enough room for two servers, in small holes:
# they load all the same, since libnpu defragments, and then a larger one in the
# place of the first and of what was left. Who is moved for it notices nothing.
. "${0%/*}/tap.inc"

npu_pci >/dev/null || { echo "1..0 # SKIP no M6 NPU"; exit 77; }
model=/src/build/models/demo.npu
info=/sys/kernel/debug/npu/mem_pool_info
log=/tmp/tight_pool

healthy() { wget -q -O /dev/null "http://127.0.0.1:$1/health" 2>/dev/null; }

# start PORT OPTION...: a server, whose log has the port in its name.
start()
{
	local port=$1

	shift
	npu_server --model $model --host "127.0.0.1:$port" "$@" \
		>$log."$port" 2>&1 &
	eval "pid_$port=$!"
	until_true 120 healthy "$port"
}

stop()
{
	eval "kill -TERM \$pid_$1 && wait \$pid_$1"
}

# What one says to a fixed prompt.
answer()
{
	wget -q -O - --post-data \
		'{"messages":[{"role":"user","content":"How much memory does the M6 mini have?"}],"temperature":0,"max_tokens":48}' \
		"http://127.0.0.1:$1/v1/chat/completions" |
		sed -n 's/.*"content":"\([^"]*\)".*/\1/p'
}

# measure OPTION...: what a server takes, in a pool of its own.
measure()
{
	start 8090 --pool private "$@" || return
	need=$(sed -n 's/^used: //p' $info)
	words=$(answer 8090)
	stop 8090
}

slots="--max-concurrent 8"
# shellcheck disable=SC2086 # two words
ok "a large server with a pool of its own" measure $slots
large=$need
ok "and a smaller one" measure
echo "# they take $large and $need bytes and say: $words"
ok "that answers" test -n "$words"
ok "and really is smaller" test "$need" -lt "$large"

"/src/build/$M6_BUILD/tests/vm/crowd" $((need + large)) >$log.crowd 2>&1 &
crowd=$!
crowded() { grep -q '^crowd: pool' $log.crowd 2>/dev/null; }
ok "a pool with as much free as both take" until_true 30 crowded
pool=$(sed -n 's/^crowd: pool //p' $log.crowd)
# figure NAME: the first one so called of what the kernel says of the pool.
figure()
{
	sed -n "/^pool $pool:/,/^  segment/s/^  .*\<$1 \([0-9]*\).*/\1/p" $info |
		head -n 1
}
show() { sed -n 's/^  \(size\|defrag\)/# \1/p' $info; }
show
ok "but in holes of 64 KiB" test "$(figure largest_free_block)" = 65536

in_pool() { grep -q "in pool $pool of " $log."$1"; }
says_same() { [ "$(answer "$1")" = "$words" ]; }
serves_in_pool() { start "$@" && in_pool "$1" && says_same "$1"; }
ok "a server loads into it and answers as before" serves_in_pool 8091
ok "so does another one" serves_in_pool 8092
show
ok "after one defragmentation" test "$(figure runs)" = 1

ok "the first one ends" stop 8091
ok "no free block is large enough for the large server" \
	test "$(figure largest_free_block)" -lt "$large"
# shellcheck disable=SC2086
ok "but it loads and answers" serves_in_pool 8093 $slots
show
ok "after another defragmentation" test "$(figure runs)" = 2
ok "the server that was moved for it answers as before" says_same 8092
less_is_left() { [ $(($(figure size) - $(figure used))) -lt "$need" ]; }
ok "now there is no room for a third" less_is_left

refused()
{
	npu_server --model $model --host 127.0.0.1:8094 --pool "$pool" \
		>$log.8094 2>&1 && return 1
	sed -n 's/^npu_server: /# /p' $log.8094 | tail -n 1
	grep -q "pool $pool: no buffer of .* as much is not free; take a larger pool" \
		$log.8094
}
ok "which is told so" refused
ok "the servers end" eval "stop 8092 && stop 8093"

ends()
{
	kill -TERM $crowd
	wait $crowd
}
ok "what was between the holes is as it was" ends
sed 's/^/# /' $log.crowd
nothing_left() { grep -q '^total: 0$' $info; }
ok "nothing is left" until_true 30 nothing_left
finish
