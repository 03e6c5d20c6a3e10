// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../tap.h"
#include "control.h"
#include "guest.h"

static char answer[4096];

static const char *command(struct guest *guest, const char *text)
{
	char line[256];

	strcpy(line, text);
	m6_control_command(guest->dev, line, answer, sizeof(answer));
	return answer;
}

static bool good(struct guest *guest, const char *text)
{
	return !strncmp(command(guest, text), "{\"ok\":true", 10);
}

static int connect_to(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(addr.sun_path, path);
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		abort();
	return fd;
}

static void test_socket(struct guest *guest)
{
	char dir[] = "/tmp/m6-control-XXXXXX", path[64], reply[64];
	struct m6_control *control;
	char flood[4096];
	int a, b;

	if (!mkdtemp(dir))
		abort();
	snprintf(path, sizeof(path), "%s/socket", dir);
	control = m6_control_create(guest->dev, path);
	ok(control != NULL, "listens");
	ok(!m6_control_create(guest->dev, path), "only once");
	a = connect_to(path);
	b = connect_to(path);
	ok(write(a, "advance 1\nadvance", 17) == 17 &&
	   read(a, reply, sizeof(reply)) == 12, "a line, an answer");
	ok(write(b, "bad\n", 4) == 4 && read(b, reply, sizeof(reply)) > 12 &&
	   strstr(reply, "false"), "two clients");
	ok(write(a, " 1\n", 3) == 3 && read(a, reply, sizeof(reply)) == 12,
	   "a line in parts");
	memset(flood, 'x', sizeof(flood));
	ok(send(b, flood, sizeof(flood), MSG_NOSIGNAL) > 0 &&
	   read(b, reply, sizeof(reply)) <= 0, "too long a line");
	close(a);
	close(b);
	m6_control_destroy(control);
	ok(access(path, F_OK), "leaves nothing");
	rmdir(dir);
}

int main(void)
{
	struct guest guest;

	guest_init(&guest);
	ok(good(&guest, "status") && strstr(answer, "\"rings\":[{") &&
	   strstr(answer, "\"quota\":128}") &&
	   strstr(answer, "\"sram\":{\"room\":4194304,"), "status");
	ok(good(&guest, "help") && strstr(answer, "inject unit-hang RING"),
	   "help");
	ok(good(&guest, "advance 1000") && good(&guest, "reset"), "advance");
	ok(good(&guest, "inject spurious-irq 5") && guest_irqs(&guest, 5) == 1,
	   "inject spurious-irq");
	ok(good(&guest, "inject lost-irq 0") &&
	   good(&guest, "inject mmu-fault") &&
	   good(&guest, "inject unit-hang 4") &&
	   good(&guest, "inject link 3 2") &&
	   good(&guest, "inject sensor-drift -500") &&
	   good(&guest, "inject temperature 90000"), "inject");
	ok(good(&guest, "inject stuck-bit 0x87654321f 7 1") &&
	   good(&guest, "status") && strstr(answer, "\"stuck_bits\":1") &&
	   good(&guest, "heal stuck-bit 0x87654321f 7") &&
	   good(&guest, "status") && strstr(answer, "\"stuck_bits\":0"),
	   "a stuck bit comes and goes");
	ok(!good(&guest, "heal stuck-bit 0x87654321f 7") &&
	   strstr(answer, "not injected") &&
	   !good(&guest, "inject stuck-bit 0 8 1") &&
	   !good(&guest, "inject stuck-bit 0 0 2") &&
	   !good(&guest, "inject stuck-bit 0 0x100000000 1") &&
	   !good(&guest, "inject stuck-bit -1 0 1") &&
	   !good(&guest, "inject stuck-bit 0 0") &&
	   strstr(answer, "ADDR BIT"), "but no nonsense: %s", answer);
	ok(guest_read(&guest, M6NPU_REG_STATUS) & M6NPU_STATUS_THROTTLED,
	   "heat arrives");
	ok(!good(&guest, "") && !good(&guest, "nonsense") &&
	   !good(&guest, "inject") && !good(&guest, "inject nonsense") &&
	   !good(&guest, "inject unit-hang") &&
	   !good(&guest, "inject unit-hang 9") &&
	   !good(&guest, "inject unit-hang -1") &&
	   !good(&guest, "inject lost-irq 99999999999999") &&
	   !good(&guest, "advance -1") &&
	   !good(&guest, "inject link 0 0 0 0 0 0"), "nonsense");
	test_socket(&guest);
	guest_exit(&guest);
	return done();
}
