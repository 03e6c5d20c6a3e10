# SPDX-License-Identifier: MIT
# Completion for npu_mem_pool_prealloc(8).

_npu_mem_pool_prealloc()
{
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}

	COMPREPLY=()
	case $before in
	--conf)
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		;;
	--size|--segments|--client-limit|--device|-d)
		;;
	*)
		mapfile -t COMPREPLY < <(compgen -W '--size --segments
			--client-limit --info --defrag --flush --release
			--device --json --conf --help --version' -- "$word")
		;;
	esac
}

complete -o filenames -F _npu_mem_pool_prealloc npu_mem_pool_prealloc
