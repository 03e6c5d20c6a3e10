/* SPDX-License-Identifier: MIT */
/*
 * What the CPU does in a memory test: writes words, and looks whether they are
 * still there. @count is a multiple of MEM_WORDS_MIN.
 */
#ifndef MEM_WORDS_H
#define MEM_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEM_WORDS_MIN	1024

void mem_words_fill(uint32_t *words, size_t count, uint32_t pattern);
/* True if any word is another. */
bool mem_words_differ(const uint32_t *words, size_t count, uint32_t pattern);

/* What the word at @addr holds in an address test: that, folded. */
uint32_t mem_address_word(uint64_t addr);
/* The same for words from @addr on, which do not cross a multiple of 4 GiB. */
void mem_words_fill_address(uint32_t *words, size_t count, uint64_t addr);
bool mem_words_differ_address(const uint32_t *words, size_t count,
			      uint64_t addr);

#endif
