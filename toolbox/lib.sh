# SPDX-License-Identifier: MIT
#
# What toolbox/create and toolbox/run share: where a root lives and how it is
# named. Sourced by bash.

toolbox_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree_dir=$(dirname "$toolbox_dir")
cache_dir=${M6_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/m6npu}

say()
{
	printf 'toolbox: %s\n' "$*" >&2
}

die()
{
	say "$*"
	exit 1
}

# The lists a root is made of: the base, and for any other name its additions.
root_lists()
{
	local name=$1

	echo "$toolbox_dir/packages"
	[ "$name" = base ] && return
	[ -r "$toolbox_dir/packages-$name" ] ||
		die "no list toolbox/packages-$name; known: base $(known_roots)"
	echo "$toolbox_dir/packages-$name"
}

known_roots()
{
	local f

	for f in "$toolbox_dir"/packages-*; do
		f=${f##*/packages-}
		[ "$f" = guest ] || printf '%s ' "$f"
	done
}

# Everything that decides a root's contents is in its name, so an edited list
# makes a new root and an old checkout still finds its own. How toolbox/create
# makes it counts by this number: raise it when that changes the result.
root_version=1

root_path()
{
	local name=$1 lists hash

	lists=$(root_lists "$name") || exit 1
	# shellcheck disable=SC2086 # one file name a word
	hash=$(cd "$toolbox_dir" &&
	       { echo $root_version; cat $lists packages-guest setup; } |
	       sha256sum | cut -c1-12)
	echo "$cache_dir/root-$name-$hash"
}

# Become root of a user namespace that keeps the caller's own files its own.
# With root's powers already there, only the mounts need a namespace.
enter_namespace()
{
	if [ "$(id -u)" = 0 ]; then
		exec unshare --mount -- "$@"
	fi
	exec unshare --user --map-root-user --map-auto --mount -- "$@"
}
