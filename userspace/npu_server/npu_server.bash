# SPDX-License-Identifier: MIT
# Completion for npu_server(8).

_npu_server()
{
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}

	COMPREPLY=()
	case $before in
	--model)
		mapfile -t COMPREPLY < <(compgen -f -X '!*.npu' -- "$word"
					 compgen -d -- "$word")
		;;
	--config|--conf|--npu-expert-report)
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		;;
	--kv-cache-type)
		mapfile -t COMPREPLY < <(compgen -W 'f16 q8_0' -- "$word")
		;;
	--pool)
		mapfile -t COMPREPLY < <(compgen -W 'auto private' -- "$word")
		;;
	--log-level)
		mapfile -t COMPREPLY < <(compgen -W 'error warn info debug' \
					 -- "$word")
		;;
	--host|--npu-device-id|--max-*|--queue|--temperature|--api-key|--grace)
		;;
	--npu-expert-preload-threshold)
		mapfile -t COMPREPLY < <(compgen -W 'off' -- "$word")
		;;
	--dynamic-expert-threshold|--expert-budget)
		;;
	*)
		mapfile -t COMPREPLY < <(compgen -W '--model --config --host
			--npu-device-id --max-concurrent --max-seq-len --queue
			--max-tokens --temperature --kv-cache-type
			--pool --npu-disable-expert-cache
			--npu-expert-preload-threshold
			--dynamic-expert-threshold --npu-experts-on-demand
			--npu-expert-fallback --npu-expert-report
			--expert-budget --api-key --grace --log-level --conf --help
			--version' -- "$word")
		;;
	esac
}

complete -o filenames -F _npu_server npu_server
