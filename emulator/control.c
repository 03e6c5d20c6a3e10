// SPDX-License-Identifier: MIT
#include "control.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "socket.h"

#define CLIENTS_MAX	8
#define LINE_BYTES	256
#define ANSWER_BYTES	4096
#define ARGUMENTS_MAX	3
#define WORDS_MAX	(2 + ARGUMENTS_MAX)

struct client {
	int fd;
	size_t used;
	char line[LINE_BYTES];
};

struct m6_control {
	struct m6_device *dev;
	char *path;
	int listener;
	int wake[2];		/* closing the write end ends the thread */
	pthread_t thread;
	struct client client[CLIENTS_MAX];
	unsigned int clients;
};

/* Puts a refusal that says more than an errno would. */
static int __attribute__((format(printf, 4, 5)))
refuse(char *answer, size_t bytes, int err, const char *format, ...)
{
	int used = snprintf(answer, bytes, "{\"ok\":false,\"error\":\"");
	va_list args;

	va_start(args, format);
	used += vsnprintf(answer + used, bytes - used, format, args);
	va_end(args);
	snprintf(answer + used, bytes - used, "\"}");
	return err;
}

/* @limit: the largest magnitude it may have. */
static int parse_long(const char *word, long limit, long *value)
{
	char *end;

	if (!word || !*word)
		return -EINVAL;
	errno = 0;
	*value = strtol(word, &end, 0);
	return errno || *end || *value > limit || *value < -limit ? -EINVAL : 0;
}

static int inject_hang(struct m6_device *dev, const long *arg)
{
	return m6_device_inject_hang(dev, arg[0]);
}

static int inject_mmu_fault(struct m6_device *dev, const long *arg)
{
	(void)arg;
	m6_device_inject_mmu_fault(dev);
	return 0;
}

static int inject_lost_irq(struct m6_device *dev, const long *arg)
{
	return m6_device_inject_lost_irq(dev, arg[0]);
}

static int inject_spurious_irq(struct m6_device *dev, const long *arg)
{
	return m6_device_inject_spurious_irq(dev, arg[0]);
}

static int inject_link(struct m6_device *dev, const long *arg)
{
	return m6_device_inject_link(dev, arg[0], arg[1]);
}

static int inject_temp(struct m6_device *dev, const long *arg)
{
	m6_device_inject_temp(dev, arg[0]);
	return 0;
}

static int inject_drift(struct m6_device *dev, const long *arg)
{
	m6_device_inject_drift(dev, arg[0]);
	return 0;
}

static int inject_stuck_bit(struct m6_device *dev, const long *arg)
{
	struct m6_stuck_bit bit = { arg[0], arg[1], arg[2] };

	/* What does not fit the structure is no bit either. */
	if (arg[0] < 0 || arg[1] != (long)bit.bit || arg[2] != (long)bit.value)
		return -EINVAL;
	return m6_device_inject_stuck_bit(dev, &bit);
}

static int heal_stuck_bit(struct m6_device *dev, const long *arg)
{
	if (arg[0] < 0 || arg[1] < 0 || arg[1] > 7)
		return -EINVAL;
	return m6_device_heal_stuck_bit(dev, arg[0], arg[1]);
}

static const struct fault {
	const char *verb;
	const char *name;
	const char *arguments;
	unsigned int count;
	int (*run)(struct m6_device *dev, const long *arg);
	long limit;		/* magnitude of arguments, 0: 31 bits */
} faults[] = {
	{ "inject", "unit-hang", "RING", 1, inject_hang },
	{ "inject", "mmu-fault", "", 0, inject_mmu_fault },
	{ "inject", "lost-irq", "VECTOR", 1, inject_lost_irq },
	{ "inject", "spurious-irq", "VECTOR", 1, inject_spurious_irq },
	{ "inject", "link", "SPEED WIDTH", 2, inject_link },
	{ "inject", "temperature", "MILLIDEGREES", 1, inject_temp },
	{ "inject", "sensor-drift", "MILLIDEGREES", 1, inject_drift },
	{ "inject", "stuck-bit", "ADDR BIT(0..7) VALUE(0|1)", 3,
	  inject_stuck_bit, LONG_MAX },
	{ "heal", "stuck-bit", "ADDR BIT(0..7)", 2, heal_stuck_bit,
	  LONG_MAX },
};

static int command_status(struct m6_device *dev, char **word, char *answer,
			  size_t bytes)
{
	int err = m6_device_status_json(dev, answer, bytes);

	(void)word;
	if (err)
		answer[0] = 0;
	return err;
}

static int run_fault(struct m6_device *dev, const struct fault *fault,
		     char **word)
{
	const long limit = fault->limit ? fault->limit : INT32_MAX;
	long arg[ARGUMENTS_MAX] = { 0 };

	for (unsigned int i = 0; i < fault->count; i++)
		if (parse_long(word[i], limit, &arg[i]))
			return -EINVAL;
	m6_info("%s %s", fault->verb, fault->name);
	return fault->run(dev, arg);
}

static int command_fault(struct m6_device *dev, char **word, char *answer,
			 size_t bytes)
{
	const struct fault *fault = faults;
	int err;

	while (strcmp(word[0], fault->verb) || !word[1] ||
	       strcmp(word[1], fault->name))
		if (++fault == faults + sizeof(faults) / sizeof(faults[0]))
			return -ENOENT;
	err = run_fault(dev, fault, word + 2);
	switch (err) {
	case -EINVAL:
		return refuse(answer, bytes, err, "bad or missing argument; it is %s %s %s",
			      fault->verb, fault->name, fault->arguments);
	case -ENOSPC:
		return refuse(answer, bytes, err, "too many at a time; heal one first");
	case -ENOENT:
		return refuse(answer, bytes, err, "that was not injected");
	default:
		return err;
	}
}

static int command_advance(struct m6_device *dev, char **word, char *answer,
			   size_t bytes)
{
	long ms;

	(void)answer;
	(void)bytes;
	if (parse_long(word[1], INT32_MAX, &ms) || ms < 0)
		return -EINVAL;
	m6_device_advance(dev, (uint64_t)ms * 1000000);
	return 0;
}

static int command_reset(struct m6_device *dev, char **word, char *answer,
			 size_t bytes)
{
	(void)word;
	(void)answer;
	(void)bytes;
	m6_device_reset(dev);
	return 0;
}

static int command_help(struct m6_device *dev, char **word, char *answer,
			size_t bytes)
{
	size_t used;

	(void)dev;
	(void)word;
	used = snprintf(answer, bytes, "{\"ok\":true,\"commands\":[\"status\","
			"\"advance MILLISECONDS\",\"reset\",\"help\"");
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		used += snprintf(answer + used, bytes - used,
				 ",\"%s %s%s%s\"", faults[i].verb,
				 faults[i].name, faults[i].count ? " " : "",
				 faults[i].arguments);
	snprintf(answer + used, bytes - used, "]}");
	return 0;
}

static const struct {
	const char *name;
	int (*run)(struct m6_device *dev, char **word, char *answer,
		   size_t bytes);
} commands[] = {
	{ "status", command_status },
	{ "inject", command_fault },
	{ "heal", command_fault },
	{ "advance", command_advance },
	{ "reset", command_reset },
	{ "help", command_help },
};

static int run_command(struct m6_device *dev, char *line, char *answer,
		       size_t bytes)
{
	char *word[WORDS_MAX + 1] = { NULL }, *save;
	unsigned int count = 0;

	for (char *w = strtok_r(line, " \t\r", &save); w && count < WORDS_MAX;
	     w = strtok_r(NULL, " \t\r", &save))
		word[count++] = w;
	if (!count)
		return -EINVAL;
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(word[0], commands[i].name))
			return commands[i].run(dev, word, answer, bytes);
	return -ENOENT;
}

void m6_control_command(struct m6_device *dev, char *line, char *answer,
			size_t bytes)
{
	int err;

	answer[0] = 0;
	err = run_command(dev, line, answer, bytes);
	if (answer[0])
		return;
	if (!err)
		snprintf(answer, bytes, "{\"ok\":true}");
	else if (err == -ENOENT)
		snprintf(answer, bytes, "{\"ok\":false,\"error\":"
			 "\"no such command; help lists them\"}");
	else
		snprintf(answer, bytes, "{\"ok\":false,\"error\":\"%s\"}",
			 strerror(-err));
}

static void drop_client(struct m6_control *control, unsigned int i)
{
	close(control->client[i].fd);
	control->client[i] = control->client[--control->clients];
}

static int answer_line(struct m6_control *control, struct client *client)
{
	char answer[ANSWER_BYTES];
	size_t bytes;

	m6_control_command(control->dev, client->line, answer,
			   sizeof(answer) - 1);
	bytes = strlen(answer);
	answer[bytes++] = '\n';
	return send(client->fd, answer, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) ==
	       (ssize_t)bytes ? 0 : -EPIPE;
}

/* Answers every whole line there is; -errno ends the client. */
static int client_input(struct m6_control *control, struct client *client)
{
	size_t room = sizeof(client->line) - 1 - client->used;
	ssize_t done = recv(client->fd, client->line + client->used, room,
			    MSG_DONTWAIT);
	char *end;

	if (done < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (!done)
		return -ECONNRESET;
	client->used += done;
	while ((end = memchr(client->line, '\n', client->used))) {
		size_t bytes = end - client->line + 1;
		int err;

		*end = 0;
		err = answer_line(control, client);
		if (err)
			return err;
		client->used -= bytes;
		memmove(client->line, client->line + bytes, client->used);
	}
	return client->used == sizeof(client->line) - 1 ? -EMSGSIZE : 0;
}

static void accept_client(struct m6_control *control)
{
	int fd = accept4(control->listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (control->clients == CLIENTS_MAX) {
		close(fd);
		return;
	}
	control->client[control->clients].fd = fd;
	control->client[control->clients++].used = 0;
}

static void *control_thread(void *arg)
{
	struct m6_control *control = arg;
	struct pollfd poll_fd[2 + CLIENTS_MAX];

	for (;;) {
		unsigned int count = control->clients;

		poll_fd[0] = (struct pollfd) { control->wake[0], POLLIN, 0 };
		poll_fd[1] = (struct pollfd) { control->listener, POLLIN, 0 };
		for (unsigned int i = 0; i < count; i++)
			poll_fd[2 + i] = (struct pollfd) {
				control->client[i].fd, POLLIN, 0,
			};
		if (poll(poll_fd, 2 + count, -1) < 0)
			continue;
		if (poll_fd[0].revents)
			return NULL;
		/* From the end: dropping moves the last one forward. */
		for (unsigned int i = count; i--; )
			if (poll_fd[2 + i].revents &&
			    client_input(control, &control->client[i]))
				drop_client(control, i);
		if (poll_fd[1].revents)
			accept_client(control);
	}
}

struct m6_control *m6_control_create(struct m6_device *dev, const char *path)
{
	struct m6_control *control = calloc(1, sizeof(*control));
	int err;

	if (!control)
		return NULL;
	control->dev = dev;
	control->path = strdup(path);
	control->listener = m6_socket_listen(path);
	err = control->listener < 0 ? -control->listener : 0;
	if (!err && pipe(control->wake))
		err = errno;
	if (!err) {
		err = pthread_create(&control->thread, NULL, control_thread,
				     control);
		if (!err)
			return control;
		close(control->wake[0]);
		close(control->wake[1]);
	}
	if (control->listener >= 0)
		close(control->listener);
	free(control->path);
	free(control);
	errno = err;
	return NULL;
}

void m6_control_destroy(struct m6_control *control)
{
	if (!control)
		return;
	close(control->wake[1]);
	pthread_join(control->thread, NULL);
	close(control->wake[0]);
	while (control->clients)
		drop_client(control, control->clients - 1);
	close(control->listener);
	unlink(control->path);
	free(control->path);
	free(control);
}
