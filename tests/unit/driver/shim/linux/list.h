/* SPDX-License-Identifier: GPL-2.0-only */
/* Lists that count the steps taken on them, for what work is measured by. */
#ifndef SHIM_LINUX_LIST_H
#define SHIM_LINUX_LIST_H

#include_next <linux/list.h>

extern unsigned long shim_list_steps;

#undef list_next_entry
#define list_next_entry(pos, member) \
	(shim_list_steps++, \
	 list_entry((pos)->member.next, typeof(*(pos)), member))
#undef list_prev_entry
#define list_prev_entry(pos, member) \
	(shim_list_steps++, \
	 list_entry((pos)->member.prev, typeof(*(pos)), member))

#endif
