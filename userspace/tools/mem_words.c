// SPDX-License-Identifier: MIT
/*
 * The inner loops have a constant length, which is what lets a compiler use
 * the machine's vectors for all of it.
 */
#include "mem_words.h"

void mem_words_fill(uint32_t *words, size_t count, uint32_t pattern)
{
	for (; count; count -= MEM_WORDS_MIN, words += MEM_WORDS_MIN)
		for (size_t i = 0; i < MEM_WORDS_MIN; i++)
			words[i] = pattern;
}

bool mem_words_differ(const uint32_t *words, size_t count, uint32_t pattern)
{
	uint32_t differ = 0;

	for (; count && !differ; count -= MEM_WORDS_MIN, words += MEM_WORDS_MIN)
		for (size_t i = 0; i < MEM_WORDS_MIN; i++)
			differ |= words[i] ^ pattern;
	return differ;
}

uint32_t mem_address_word(uint64_t addr)
{
	return (uint32_t)addr ^ (uint32_t)(addr >> 32);
}

void mem_words_fill_address(uint32_t *words, size_t count, uint64_t addr)
{
	const uint32_t high = (uint32_t)(addr >> 32);
	uint32_t low = (uint32_t)addr;

	for (; count; count -= MEM_WORDS_MIN, words += MEM_WORDS_MIN) {
		for (uint32_t i = 0; i < MEM_WORDS_MIN; i++)
			words[i] = (low + 4 * i) ^ high;
		low += 4 * MEM_WORDS_MIN;
	}
}

bool mem_words_differ_address(const uint32_t *words, size_t count,
			      uint64_t addr)
{
	const uint32_t high = (uint32_t)(addr >> 32);
	uint32_t low = (uint32_t)addr, differ = 0;

	for (; count && !differ;
	     count -= MEM_WORDS_MIN, words += MEM_WORDS_MIN) {
		for (uint32_t i = 0; i < MEM_WORDS_MIN; i++)
			differ |= words[i] ^ (low + 4 * i) ^ high;
		low += 4 * MEM_WORDS_MIN;
	}
	return differ;
}
