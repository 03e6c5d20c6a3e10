# SPDX-License-Identifier: MIT
# Completion for npu_compiler(1).

_npu_compiler()
{
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}

	COMPREPLY=()
	case $before in
	--input)
		mapfile -t COMPREPLY < <(compgen -d -- "$word")
		;;
	--output|--inspect|--verify)
		mapfile -t COMPREPLY < <(compgen -f -X '!*.npu' -- "$word"
					 compgen -d -- "$word")
		;;
	--calibrate|--calibration)
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		;;
	--target)
		mapfile -t COMPREPLY < <(compgen -W 'm6-mini' -- "$word")
		;;
	--quantize)
		mapfile -t COMPREPLY < <(compgen -W 'fp16 int8 int4' -- "$word")
		;;
	--moe)
		mapfile -t COMPREPLY < <(compgen -W 'grouped per-expert token' \
					 -- "$word")
		;;
	--expert-fallback)
		mapfile -t COMPREPLY < <(compgen -W 'int8 int4' -- "$word")
		;;
	--compression)
		mapfile -t COMPREPLY < <(compgen -W 'raw lz4 zstd' -- "$word")
		;;
	--expert-cache-size|--max-chunk-kb|--tiles|--context|--name|--guess|--threads|--calibrate-tokens)
		;;
	*)
		mapfile -t COMPREPLY < <(compgen -W '--input --output --target
			--quantize --expert-cache-size --compression
			--max-chunk-kb --tiles --context --name
			--moe --guess --expert-fallback
			--calibrate --calibrate-tokens --calibration --threads
			--progress --inspect --verify --json --help
			--version' -- "$word")
		;;
	esac
}

complete -o filenames -F _npu_compiler npu_compiler
