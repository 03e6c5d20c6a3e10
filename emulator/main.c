// SPDX-License-Identifier: MIT
/* m6-emulator: the board in software, behind a vfio-user socket. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control.h"
#include "device.h"
#include "log.h"
#include "profile.h"
#include "socket.h"
#include "vfio_user.h"

#ifndef M6_VERSION
#define M6_VERSION	"unknown"
#endif

#define SETTINGS_MAX	32

struct options {
	const char *socket;
	const char *control;
	const char *profile;
	const char *log_file;
	enum m6_log_level log_level;
	long ready_fd;
	long threads;
	bool dry;
	bool once;
	const char *set[SETTINGS_MAX];
	unsigned int sets;
	struct m6_stuck_bit stuck[M6_STUCK_MAX];
	unsigned int stucks;
};

static const char usage[] =
"Usage: m6-emulator --socket PATH [OPTION]...\n"
"The M6 mini NPU in software, for QEMU's vfio-user-pci.\n"
"\n"
"  --socket PATH      where QEMU connects\n"
"  --control PATH     socket for `status`, `inject FAULT`, `help`\n"
"  --profile FILE     another board than the built-in M6 mini\n"
"  --set S.KEY=VALUE  change one key of the profile, any number of times\n"
"  --stuck-bit ADDRESS:BIT:VALUE\n"
"                     bit of the byte at a bus address that always reads\n"
"                     VALUE; up to 16 times\n"
"  --threads N        for one command's arithmetic (default: all CPUs)\n"
"  --dry              charge device time, compute nothing\n"
"  --once             end when the first client goes\n"
"  --ready-fd N       write a byte there when listening\n"
"  --log-level LEVEL  error, warn (default), info or debug\n"
"  --log-file FILE    append the log there instead of to standard error\n"
"  --help, --version\n";

static const struct option long_options[] = {
	{ "socket", required_argument, NULL, 's' },
	{ "control", required_argument, NULL, 'c' },
	{ "profile", required_argument, NULL, 'p' },
	{ "set", required_argument, NULL, 'S' },
	{ "stuck-bit", required_argument, NULL, 'b' },
	{ "threads", required_argument, NULL, 't' },
	{ "dry", no_argument, NULL, 'd' },
	{ "once", no_argument, NULL, 'o' },
	{ "ready-fd", required_argument, NULL, 'r' },
	{ "log-level", required_argument, NULL, 'l' },
	{ "log-file", required_argument, NULL, 'f' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'v' },
	{ NULL, 0, NULL, 0 },
};

static atomic_int listener = -1;
static atomic_int connection = -1;
static atomic_bool stopping;

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "m6-emulator: %s: %s\n", what, why);
	exit(1);
}

static long parse_count(const char *option, const char *text, long max)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || *end || end == text || value < 0 || value > max)
		fail(option, "not a number it can have");
	return value;
}

static void add_stuck_bit(struct options *options, const char *text)
{
	if (options->stucks == M6_STUCK_MAX)
		fail("--stuck-bit", "more than 16 bits");
	if (m6_stuck_parse(text, &options->stuck[options->stucks++]))
		fail(text, "not a stuck bit; write ADDRESS:BIT:VALUE, "
		     "BIT 0 to 7, VALUE 0 or 1");
}

static void parse_option(struct options *options, int option)
{
	switch (option) {
	case 's':
		options->socket = optarg;
		break;
	case 'c':
		options->control = optarg;
		break;
	case 'p':
		options->profile = optarg;
		break;
	case 'S':
		if (options->sets == SETTINGS_MAX)
			fail("--set", "too often; use a profile file");
		options->set[options->sets++] = optarg;
		break;
	case 'b':
		add_stuck_bit(options, optarg);
		break;
	case 't':
		options->threads = parse_count("--threads", optarg, 256);
		break;
	case 'd':
		options->dry = true;
		break;
	case 'o':
		options->once = true;
		break;
	case 'r':
		options->ready_fd = parse_count("--ready-fd", optarg, 65535);
		break;
	case 'l':
		if (m6_log_level_parse(optarg, &options->log_level))
			fail("--log-level", "error, warn, info or debug");
		break;
	case 'f':
		options->log_file = optarg;
		break;
	case 'h':
		fputs(usage, stdout);
		exit(0);
	case 'v':
		puts("m6-emulator " M6_VERSION);
		exit(0);
	default:
		fputs("Try m6-emulator --help.\n", stderr);
		exit(1);
	}
}

static void parse_options(struct options *options, int argc, char **argv)
{
	int option;

	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1)
		parse_option(options, option);
	if (optind < argc)
		fail(argv[optind], "unexpected argument");
	if (!options->socket)
		fail("--socket", "missing; see --help");
}

/* Ends whatever system call the main thread is in, for good. */
static void on_signal(int signal)
{
	int fd;

	(void)signal;
	atomic_store(&stopping, true);
	fd = atomic_load(&connection);
	if (fd >= 0)
		shutdown(fd, SHUT_RDWR);
	fd = atomic_load(&listener);
	if (fd >= 0)
		shutdown(fd, SHUT_RDWR);
}

/*
 * Guest RAM is the client's file, and the client may cut it while a command
 * runs. What is not there any more reads as zero from then on.
 */
static void on_sigbus(int signal, siginfo_t *info, void *context)
{
	const uintptr_t page = sysconf(_SC_PAGESIZE);
	void *at = (void *)((uintptr_t)info->si_addr & ~(page - 1));

	(void)context;
	if (info->si_code == BUS_ADRERR &&
	    mmap(at, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
		 MAP_FIXED, -1, 0) != MAP_FAILED)
		return;
	sigaction(signal, &(struct sigaction) { .sa_handler = SIG_DFL }, NULL);
}

static void set_signals(void)
{
	struct sigaction stop = { .sa_handler = on_signal };
	struct sigaction bus = {
		.sa_sigaction = on_sigbus,
		.sa_flags = SA_SIGINFO,
	};

	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGBUS, &bus, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static void start_log(const struct options *options)
{
	int err, fd = STDERR_FILENO;

	m6_log_set_level(options->log_level);
	if (options->log_file) {
		fd = open(options->log_file,
			  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
		if (fd < 0)
			fail(options->log_file, strerror(errno));
	}
	err = m6_log_start(fd);
	if (err)
		fail("log", strerror(-err));
}

static struct m6_device *create_device(const struct options *options)
{
	struct m6_profile profile;
	struct m6_device *dev;
	char error[256];

	m6_profile_default(&profile);
	if (options->profile &&
	    m6_profile_load(&profile, options->profile, error, sizeof(error)))
		fail("--profile", error);
	for (unsigned int i = 0; i < options->sets; i++)
		if (m6_profile_set(&profile, options->set[i]))
			fail(options->set[i], "no such key, or not a value it "
			     "can have");
	dev = m6_device_create(&(struct m6_device_config) {
		.profile = &profile,
		.dry = options->dry,
		.threads = options->threads,
	});
	if (!dev)
		fail("device", "out of memory or threads");
	for (unsigned int i = 0; i < options->stucks; i++)
		m6_device_inject_stuck_bit(dev, &options->stuck[i]);
	return dev;
}

static void serve_clients(struct m6_vfio_user *server, bool once)
{
	do {
		int err, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno == EINTR || errno == ECONNABORTED)
				continue;
			break;
		}
		atomic_store(&connection, fd);
		if (stopping)
			shutdown(fd, SHUT_RDWR);
		m6_info("client connected");
		err = m6_vfio_user_serve(server, fd);
		atomic_store(&connection, -1);
		close(fd);
		m6_info("client gone%s%s", err ? ": " : "",
			err ? strerror(-err) : "");
	} while (!once && !stopping);
}

static void tell_ready(int fd)
{
	if (fd < 0)
		return;
	if (write(fd, "\n", 1) != 1)
		m6_warn("--ready-fd: %s", strerror(errno));
	close(fd);
}

int main(int argc, char **argv)
{
	struct options options = { .log_level = M6_LOG_WARN, .ready_fd = -1 };
	struct m6_control *control = NULL;
	struct m6_vfio_user *server;
	struct m6_device *dev;

	parse_options(&options, argc, argv);
	set_signals();
	dev = create_device(&options);
	server = m6_vfio_user_create(dev);
	if (!server)
		fail("server", "out of memory");
	listener = m6_socket_listen(options.socket);
	if (listener < 0)
		fail(options.socket, strerror(-listener));
	if (options.control) {
		control = m6_control_create(dev, options.control);
		if (!control) {
			unlink(options.socket);
			fail(options.control, strerror(errno));
		}
	}
	start_log(&options);
	tell_ready(options.ready_fd);
	m6_info("listening at %s", options.socket);
	serve_clients(server, options.once);
	m6_info("ending");
	unlink(options.socket);
	m6_control_destroy(control);
	m6_vfio_user_destroy(server);
	m6_device_destroy(dev);
	m6_log_stop();
	return 0;
}
