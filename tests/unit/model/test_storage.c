// SPDX-License-Identifier: MIT
/* Storage in device time: what waits for what, to the nanosecond. */
#include "../tap.h"
#include "storage.h"

/* 1000 MB/s: a byte takes a nanosecond. */
#define MB_S	1000
#define EXPERTS	8

static struct storage_read read_of(uint32_t expert, uint64_t bytes,
				   uint64_t ns)
{
	return (struct storage_read){ expert, bytes, ns };
}

static void demand(struct storage *storage, uint32_t expert, uint64_t bytes,
		   uint64_t ns)
{
	struct storage_read read = read_of(expert, bytes, ns);

	storage_demand(storage, &read);
}

static void ahead(struct storage *storage, uint32_t expert, uint64_t bytes,
		  uint64_t ns)
{
	struct storage_read read = read_of(expert, bytes, ns);

	storage_ahead(storage, &read);
}

/* ~0: it has not begun. */
static uint64_t when(const struct storage *storage, uint32_t expert)
{
	uint64_t ns;

	return storage_when(storage, expert, &ns) ? ns : ~0ull;
}

static void check_queue(void)
{
	struct storage s;
	uint32_t expert;

	ok(!storage_init(&s, MB_S, EXPERTS), "made");
	demand(&s, 0, 100, 1000);
	demand(&s, 1, 50, 1000);
	ok(when(&s, 0) == 1100 && when(&s, 1) == 1150,
	   "reads go one behind the other");
	demand(&s, 2, 10, 2000);
	ok(when(&s, 2) == 2010, "an idle disk begins at once");
	ok(storage_complete(&s, 1100, &expert) && expert == 0 &&
	   !storage_complete(&s, 1149, &expert) &&
	   storage_complete(&s, 1150, &expert) && expert == 1,
	   "nothing is there before its time");
	ok(s.bytes == 160, "bytes are counted");
	storage_clear(&s);
}

static void check_ahead(void)
{
	struct storage s;

	ok(!storage_init(&s, MB_S, EXPERTS), "made");
	ahead(&s, 0, 100, 1000);
	ahead(&s, 1, 100, 1000);
	ahead(&s, 2, 100, 1000);
	demand(&s, 3, 10, 1050);
	ok(when(&s, 0) == 1100, "a guess is read when there is nothing else");
	ok(when(&s, 3) == 1110, "what is needed overtakes other guesses");
	ok(when(&s, 1) == ~0ull, "which wait");
	ok(storage_cancel(&s, 1) && !storage_cancel(&s, 1) &&
	   !storage_cancel(&s, 0), "and can be given up until they begin");
	storage_run(&s, 5000);
	ok(when(&s, 2) == 1210, "and begin when the disk is free");
	storage_clear(&s);
}

static void check_instant(void)
{
	struct storage s;

	ok(!storage_init(&s, 0, EXPERTS), "made");
	demand(&s, 0, 1 << 30, 7);
	ok(when(&s, 0) == 7, "without a speed it takes no time");
	storage_clear(&s);
}

int main(void)
{
	check_queue();
	check_ahead();
	check_instant();
	return done();
}
