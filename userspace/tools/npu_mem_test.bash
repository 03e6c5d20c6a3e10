# SPDX-License-Identifier: MIT
# Completion for npu_mem_test(1).

_npu_mem_test()
{
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}

	COMPREPLY=()
	case $before in
	-p|--pattern)
		mapfile -t COMPREPLY < <(compgen -W '0xAAAAAAAA 0x55555555
			0x00000000 0xFFFFFFFF' -- "$word")
		;;
	-s|--size)
		mapfile -t COMPREPLY < <(compgen -W '512M 1G 4G 16G 32G' \
					 -- "$word")
		;;
	-i|--iter|-d|--device|-m|--max-errors)
		;;
	*)
		mapfile -t COMPREPLY < <(compgen -W '--pattern --size --iter
			--device --max-errors --json --quiet --help
			--version' -- "$word")
		;;
	esac
}

complete -F _npu_mem_test npu_mem_test
