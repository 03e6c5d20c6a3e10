// SPDX-License-Identifier: MIT
/* Storage in device time: what waits for what, to the nanosecond. */
#include "../tap.h"
#include "storage.h"

/* 1000 MB/s: a byte takes a nanosecond. */
#define MB_S	1000
#define EXPERTS	8

static void demand(struct storage *storage, uint32_t expert, uint64_t bytes,
		   uint64_t ns)
{
	storage_demand(storage, &(struct storage_read){ expert, bytes, ns, 0 });
}

static void ahead(struct storage *storage, uint32_t expert, uint64_t bytes,
		  uint64_t ns)
{
	storage_ahead(storage, &(struct storage_read){ expert, bytes, ns, 0 });
}

/* ~0: nobody needs it. */
static uint64_t when(const struct storage *storage, uint32_t expert)
{
	uint64_t ns;

	return storage_when(storage, expert, &ns) ? ns : ~0ull;
}

static uint64_t next(const struct storage *storage)
{
	uint64_t ns;

	return storage_next(storage, &ns) ? ns : ~0ull;
}

static bool complete(struct storage *storage, uint64_t ns, uint32_t wanted)
{
	uint32_t expert;

	return storage_complete(storage, ns, &expert) && expert == wanted;
}

static void check_queue(void)
{
	struct storage s;
	uint32_t expert;

	ok(!storage_init(&s, MB_S, EXPERTS), "made");
	ok(next(&s) == ~0ull, "there is nothing to wait for");
	demand(&s, 0, 100, 1000);
	demand(&s, 1, 50, 1000);
	ok(when(&s, 0) == 1100 && when(&s, 1) == 1150 && next(&s) == 1100,
	   "reads go one behind the other");
	demand(&s, 2, 10, 2000);
	ok(when(&s, 2) == 2010, "an idle disk begins at once");
	ok(next(&s) == 1100, "what is complete is next");
	ok(complete(&s, 1100, 0) && !storage_complete(&s, 1149, &expert) &&
	   complete(&s, 1150, 1), "nothing is there before its time");
	ok(!storage_complete(&s, 2009, &expert) && complete(&s, 2010, 2),
	   "and all is in time");
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
	demand(&s, 3, 10, 1150);
	ok(complete(&s, 1150, 0),
	   "guesses are read when there is nothing else");
	ok(when(&s, 3) == 1160 && when(&s, 1) == ~0ull,
	   "what is needed interrupts them");
	ok(storage_hurry(&s, 2, 1155) && !storage_hurry(&s, 2, 1155) &&
	   when(&s, 2) == 1260, "a guess that is needed after all goes next");
	storage_run(&s, 1270);
	ok(complete(&s, 1270, 3) && complete(&s, 1270, 2), "and is read");
	ok(next(&s) == 1310, "what was read before an interruption counts");
	ok(storage_cancel(&s, 1) && !storage_cancel(&s, 1) &&
	   next(&s) == ~0ull, "guesses can be given up");
	ok(s.bytes == 210, "and are not counted then");
	storage_clear(&s);
}

static void check_instant(void)
{
	struct storage s;

	ok(!storage_init(&s, 0, EXPERTS), "made");
	demand(&s, 0, 1 << 30, 7);
	ok(when(&s, 0) == 7, "without a speed it takes no time");
	ahead(&s, 1, 1 << 30, 8);
	ok(complete(&s, 8, 0) && complete(&s, 8, 1), "nor do guesses");
	storage_clear(&s);
}

int main(void)
{
	check_queue();
	check_ahead();
	check_instant();
	return done();
}
