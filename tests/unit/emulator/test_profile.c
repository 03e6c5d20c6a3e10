// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../tap.h"
#include "m6npu_regs.h"
#include "profile.h"

static char error[256];

static int load(struct m6_profile *profile, const char *text)
{
	char path[] = "/tmp/m6-profile-XXXXXX";
	int fd = mkstemp(path), err;

	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		abort();
	close(fd);
	m6_profile_default(profile);
	err = m6_profile_load(profile, path, error, sizeof(error));
	unlink(path);
	return err;
}

int main(int argc, char **argv)
{
	struct m6_profile profile, shipped;
	uint32_t version;

	m6_profile_default(&profile);
	m6_profile_default(&shipped);
	ok(argc < 2 || (!m6_profile_load(&shipped, argv[1], error,
					 sizeof(error)) &&
	   !memcmp(&profile, &shipped, sizeof(profile))),
	   "the shipped profile is what is built in");
	ok(!load(&profile, "# old\n[device]\nfirmware_version = 2.1.4-rc3\n"
		 "features = auto_recover\n[thermal]\n"
		 "resistance_mc_per_w=2000 # repasted\n") &&
	   profile.firmware_version == 0x02010403 &&
	   profile.features == M6NPU_FEAT_AUTO_RECOVER &&
	   profile.resistance_mc_per_w == 2000 &&
	   profile.dram_mb_s == 230000, "another one");
	ok(!load(&profile, "[opp]\n750=700\n900 = 900\n") &&
	   profile.opp_count == 2 && profile.opp[1].mhz == 900, "own OPPs");
	ok(!load(&profile, "[storage]\nnvme_mb_s = 700\n[dry]\nseed = 7\n"
		 "zipf_permille = 0\n") &&
	   profile.nvme_mb_s == 700 && profile.dry.seed == 7 &&
	   !profile.dry.zipf_permille && profile.dry.topic_length == 16,
	   "a disk, and routing");
	ok(load(&profile, "[dry]\npredict_permille = 1001\n") == -EINVAL, "%s",
	   error);
	ok(load(&profile, "[opp]\n900 = 900\n") == -EINVAL, "%s", error);
	ok(load(&profile, "[opp]\n900 = 900\n750 = 800\n") == -EINVAL, "%s",
	   error);
	ok(load(&profile, "[timing]\ndram_mb_s = 0\n") == -EINVAL, "%s",
	   error);
	ok(load(&profile, "[timing]\n\ndram = 5\n") == -ENOENT &&
	   strstr(error, ":3:"), "%s", error);
	ok(load(&profile, "[timing\n") == -EINVAL &&
	   load(&profile, "timing\n") == -EINVAL &&
	   load(&profile, "[device]\nfeatures = telepathy\n") == -EINVAL &&
	   load(&profile, "[thermal]\nthrottle_mc = 80000\n") == -EINVAL,
	   "nonsense");
	ok(m6_profile_load(&profile, "/nonexistent", error, sizeof(error)) ==
	   -ENOENT, "%s", error);
	m6_profile_default(&profile);
	ok(!m6_profile_set(&profile, "timing.idle_permille=0") &&
	   !profile.idle_permille &&
	   !m6_profile_set(&profile, "device.firmware_version = 2.1.4-rc3") &&
	   profile.firmware_version == 0x02010403, "one key");
	ok(m6_profile_set(&profile, "timing.idle=0") == -ENOENT &&
	   m6_profile_set(&profile, "idle_permille=0") == -EINVAL &&
	   m6_profile_set(&profile, "timing.idle_permille") == -EINVAL &&
	   m6_profile_set(&profile, "thermal.throttle_mc=1") == -EINVAL &&
	   m6_profile_set(&profile, "") == -EINVAL &&
	   profile.throttle_mc == 87000, "not so");
	ok(m6_version_parse("2.3", &version) == -EINVAL &&
	   m6_version_parse("2.3.1x", &version) == -EINVAL &&
	   m6_version_parse("2.3.1-rc", &version) == -EINVAL &&
	   m6_version_parse("2.256.1", &version) == -EINVAL, "versions");
	return done();
}
