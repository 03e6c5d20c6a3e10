// SPDX-License-Identifier: MIT
/*
 * Moves a running program's buffers about.
 *
 * Usage: churn ROUNDS COMMAND [ARGUMENT...]
 *
 * Makes a persistent pool, puts ROUNDS buffers of its own at its bottom, and
 * starts the command, whose buffers so come to lie above them. At SIGUSR1 it
 * closes one of its own after the other, the topmost first, and defragments the
 * pool each time: all that is above moves down into the hole. A larger buffer on
 * top of all keeps the planner from filling the hole with something else from
 * up there. Prints TAP. SIGTERM ends it, and the command.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../kselftest/board.h"
#include "../unit/tap.h"

#define POOL_SIZE	(768 * MIB)
#define ROUNDS_MAX	1000
/* Buffers move by as much; every eighth time far enough for the device's help. */
#define HOLE_NARROW	(256 * 1024ull)
#define HOLE_WIDE	(4 * MIB)
#define WIDE_EVERY	8
#define LID		(8 * MIB)

static int fd;
static uint32_t pool;
static struct buffer ground[ROUNDS_MAX], lid;

/* What became of all rounds. */
struct churn {
	uint32_t rounds;
	uint64_t moved, copied, copied_device;
	uint64_t pause_max, pause_sum, time_sum;
	uint64_t worst_hole;	/* the pause was longest with */
};

/* ---- Figures ---- */

static struct drm_m6npu_pool_info pool_info(void)
{
	struct drm_m6npu_pool_info info;

	if (board_pool_info(fd, pool, &info))
		memset(&info, 0, sizeof(info));
	return info;
}

/* Jobs that ended of the context of a process; -1 if it has none. */
static long long jobs_of(pid_t pid)
{
	FILE *file = fopen("/sys/kernel/debug/npu/contexts", "re");
	long long jobs = -1, count;
	char line[512];
	int owner;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%*s %d %*u %*u %lld", &owner, &count) == 2 &&
		    owner == pid)
			jobs = count;
	if (file)
		fclose(file);
	return jobs;
}

/* Resets of the device and of its units, all together. */
static long resets(void)
{
	FILE *file = fopen("/sys/kernel/debug/npu/rings", "re");
	char line[512];
	long sum = file ? 0 : -1;

	while (file && fgets(line, sizeof(line), file)) {
		const char *last = strrchr(line, ' ');

		/* The heading has no number there. */
		sum += last ? strtol(last, NULL, 10) : 0;
	}
	if (file)
		fclose(file);
	return sum;
}

/* ---- The pool ---- */

static bool make_ground(uint32_t rounds)
{
	struct drm_m6npu_pool_create create = {
		.size = POOL_SIZE, .flags = DRM_M6NPU_POOL_PERSISTENT,
	};

	if (board_ioctl(fd, DRM_IOCTL_M6NPU_POOL_CREATE, &create))
		return false;
	pool = create.pool;
	for (uint32_t i = 0; i < rounds; i++)
		if (board_bo(fd, pool, i % WIDE_EVERY ? HOLE_NARROW : HOLE_WIDE,
			     0, 0, &ground[i]))
			return false;
	return true;
}

/* ---- Rounds ---- */

/* Until another job of the process has ended; false if that takes very long. */
static bool wait_for_job(pid_t pid, long long *jobs)
{
	const struct timespec pause = { .tv_nsec = 1000 * 1000 };

	for (int i = 0; i < 30000; i++) {
		long long now = jobs_of(pid);

		if (now > *jobs) {
			*jobs = now;
			return true;
		}
		nanosleep(&pause, NULL);
	}
	return false;
}

/* One hole, closed again. True if all that is above it came down. */
static bool churn_once(struct churn *churn, struct buffer *hole, uint64_t above)
{
	struct drm_m6npu_pool_defrag report;
	uint64_t size = hole->size;
	int ret;

	board_buffer_close(fd, hole);
	ret = board_pool_defrag(fd, pool, 0, &report);
	churn->rounds++;
	churn->moved += report.moved;
	churn->copied += report.copied;
	churn->copied_device += report.copied_device;
	churn->pause_sum += report.pause_ns;
	churn->time_sum += report.time_ns;
	if (report.pause_ns > churn->pause_max) {
		churn->pause_max = report.pause_ns;
		churn->worst_hole = size;
	}
	if (!ret && !report.stayed && report.moved >= above &&
	    report.largest_after == report.free)
		return true;
	printf("# round %u: %d, moved %" PRIu64 " of %" PRIu64
	       ", stayed %u, largest %" PRIu64 " of %" PRIu64 "\n",
	       churn->rounds, ret, (uint64_t)report.moved, above,
	       report.stayed, (uint64_t)report.largest_after,
	       (uint64_t)report.free);
	return false;
}

static void churn_show(const struct churn *churn, long long jobs)
{
	double n = churn->rounds;

	printf("# %u defrags, %lld jobs meanwhile\n", churn->rounds, jobs);
	printf("# pause: worst %.1f ms (by %" PRIu64
	       " KiB), mean %.1f ms; a defrag: mean %.1f ms\n",
	       (double)churn->pause_max / 1e6, churn->worst_hole / 1024,
	       (double)churn->pause_sum / 1e6 / n,
	       (double)churn->time_sum / 1e6 / n);
	printf("# moved %.0f MiB, copied %.0f MiB, the device %.0f of them\n",
	       (double)churn->moved / MIB, (double)churn->copied / MIB,
	       (double)churn->copied_device / MIB);
}

static void churn(uint32_t rounds, pid_t child)
{
	struct drm_m6npu_pool_info info = pool_info();
	uint64_t theirs = info.used - info.client_used;
	long long jobs = jobs_of(child), first = jobs;
	struct churn churn = { 0 };
	uint32_t good = 0;

	printf("# the command has %" PRIu64 " bytes in %u buffers\n", theirs,
	       info.buffers - rounds);
	ok(theirs > 0, "the command's buffers are in the persistent pool");
	ok(!board_bo(fd, pool, LID, 0, 0, &lid), "they get a lid");
	for (uint32_t i = rounds; i-- && wait_for_job(child, &jobs);)
		good += churn_once(&churn, &ground[i], theirs + LID);
	churn_show(&churn, jobs_of(child) - first);
	ok(churn.rounds == rounds, "%u times, each after another job", rounds);
	ok(good == rounds, "all of them moved each time");
	ok(churn.copied >= rounds * theirs / 2, "with what they hold");
	ok(churn.copied_device, "which the device copied in part");
	ok(!resets(), "no reset");
}

/* ---- The command ---- */

static pid_t start(char **argv, const sigset_t *signals)
{
	pid_t child = fork();

	if (child)
		return child;
	/* Signals from outside are for us. */
	setpgid(0, 0);
	sigprocmask(SIG_UNBLOCK, signals, NULL);
	execvp(argv[0], argv);
	fprintf(stderr, "churn: %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

/* Until one of them arrives; true if the command still runs. */
static bool wait_for(int wanted, const sigset_t *signals)
{
	int got;

	do {
		sigwait(signals, &got);
	} while (got != wanted && got != SIGCHLD);
	return got == wanted;
}

/* True if the command ended well and left nothing in the pool. */
static bool end(pid_t child)
{
	int status = -1, ret;

	kill(child, SIGTERM);
	waitpid(child, &status, 0);
	board_buffer_close(fd, &lid);
	for (uint32_t i = 0; i < ROUNDS_MAX; i++)
		board_buffer_close(fd, &ground[i]);
	ret = board_pool_destroy(fd, pool);
	if (ret || status)
		printf("# the command's status %#x, the pool's end %d\n",
		       (unsigned int)status, ret);
	return !ret && !status;
}

int main(int argc, char **argv)
{
	uint32_t rounds = argc > 2 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
	sigset_t signals;
	pid_t child;
	bool runs;

	if (!rounds || rounds > ROUNDS_MAX) {
		fprintf(stderr, "Usage: churn ROUNDS COMMAND [ARGUMENT...], up to %u rounds\n",
			ROUNDS_MAX);
		return 2;
	}
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGCHLD);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	fd = board_open();
	if (!ok(fd >= 0 && make_ground(rounds),
		"a persistent pool with %u buffers at its bottom", rounds))
		return done();
	child = start(argv + 2, &signals);
	runs = ok(wait_for(SIGUSR1, &signals), "the command runs");
	if (runs)
		churn(rounds, child);
	done();
	fflush(stdout);
	/* Whoever listens may ask some more. */
	if (runs)
		wait_for(SIGTERM, &signals);
	return end(child) && !tap_failed ? 0 : 1;
}
