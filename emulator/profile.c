// SPDX-License-Identifier: MIT
#include "profile.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "m6npu_regs.h"

#define LINE_BYTES	256

struct profile_key {
	const char *section;
	const char *key;
	size_t offset;
	uint32_t fallback;
	uint32_t min;
	uint32_t max;
};

#define KEY_OF(section, key, member, fallback, min, max) \
	{ #section, #key, offsetof(struct m6_profile, member), fallback, min, \
	  max }
#define KEY(section, key, fallback, min, max) \
	KEY_OF(section, key, key, fallback, min, max)
#define DRY_KEY(key, fallback, min, max) \
	KEY_OF(dry, key, dry.key, fallback, min, max)

static const struct profile_key profile_keys[] = {
	KEY(timing, dram_mb_s, 230000, 1, 100000000),
	KEY(timing, sram_mb_s, 1200000, 1, 100000000),
	KEY(timing, lz4_mb_s, 1200, 1, 100000000),
	KEY(timing, macs_per_cycle, 4096, 1, 1u << 24),
	KEY(timing, command_launch_ns, 1000, 0, 1000000000),
	KEY(timing, job_launch_ns, 10000, 0, 1000000000),
	KEY(timing, tlb_walk_ns, 200, 0, 1000000),
	KEY(timing, router_walk_ns, 200, 0, 1000000),
	KEY(timing, idle_permille, 1000, 0, 1000000),
	KEY(link, link_speed, 4, 1, 5),
	KEY(link, link_width, 4, 1, 16),
	KEY(link, link_mb_s, 15800, 1, 1000000),
	KEY(power, idle_mw, 6800, 0, 1000000),
	KEY(power, unit_mw, 4000, 0, 1000000),
	KEY(power, dram_pj_per_byte, 40, 0, 100000),
	KEY(thermal, ambient_mc, 25000, 0, 100000),
	KEY(thermal, resistance_mc_per_w, 2300, 1, 100000),
	KEY(thermal, tau_ms, 49000, 1, 10000000),
	KEY(thermal, throttle_mc, 87000, 0, 200000),
	KEY(thermal, unthrottle_mc, 82000, 0, 200000),
	KEY(thermal, critical_mc, 105000, 0, 200000),
	KEY(thermal, throttle_mhz, 750, 1, 100000),
	KEY(thermal, sensor_bias_mc, 1800, 0, 20000),
	KEY(storage, nvme_mb_s, 2100, 1, 1000000),
	DRY_KEY(seed, 1, 0, UINT32_MAX),
	DRY_KEY(zipf_permille, 800, 0, 10000),
	DRY_KEY(repeat_permille, 500, 0, 1000),
	DRY_KEY(topic_length, 16, 1, 1000000),
	DRY_KEY(predict_permille, 800, 0, 1000),
};

#define KEYS	(sizeof(profile_keys) / sizeof(profile_keys[0]))

static const struct m6_opp default_opps[] = {
	{ 300, 600 }, { 500, 650 }, { 750, 725 }, { 1000, 800 }, { 1200, 875 },
};

static const struct {
	const char *name;
	uint32_t bit;
} feature_names[] = {
	{ "large_pages", M6NPU_FEAT_LARGE_PAGES },
	{ "seqlen_check", M6NPU_FEAT_SEQLEN_CHECK },
	{ "temp_drift_fix", M6NPU_FEAT_TEMP_DRIFT_FIX },
	{ "auto_recover", M6NPU_FEAT_AUTO_RECOVER },
};

static uint32_t *profile_value(struct m6_profile *profile,
			       const struct profile_key *key)
{
	return (uint32_t *)((char *)profile + key->offset);
}

void m6_profile_default(struct m6_profile *profile)
{
	memset(profile, 0, sizeof(*profile));
	for (size_t i = 0; i < KEYS; i++)
		*profile_value(profile, &profile_keys[i]) =
			profile_keys[i].fallback;
	memcpy(profile->opp, default_opps, sizeof(default_opps));
	profile->opp_count = sizeof(default_opps) / sizeof(default_opps[0]);
	m6_version_parse("2.3.1", &profile->firmware_version);
	for (size_t i = 0; i < sizeof(feature_names) / sizeof(*feature_names); i++)
		profile->features |= feature_names[i].bit;
}

int m6_version_parse(const char *text, uint32_t *version)
{
	unsigned int major, minor, patch, rc = 0;
	int used = 0;

	if (sscanf(text, "%3u.%3u.%3u%n", &major, &minor, &patch, &used) != 3)
		return -EINVAL;
	text += used;
	used = 0;
	if (*text && (sscanf(text, "-rc%3u%n", &rc, &used) != 1 || text[used]))
		return -EINVAL;
	if (major > 255 || minor > 255 || patch > 255 || rc > 255)
		return -EINVAL;
	*version = major << 24 | minor << 16 | patch << 8 | rc;
	return 0;
}

const struct m6_opp *m6_profile_opp(const struct m6_profile *profile,
				    uint32_t mhz)
{
	for (uint32_t i = 0; i < profile->opp_count; i++)
		if (profile->opp[i].mhz == mhz)
			return &profile->opp[i];
	return NULL;
}

static int parse_number(const char *text, uint32_t min, uint32_t max,
			uint32_t *value)
{
	unsigned long number;
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	number = strtoul(text, &end, 0);
	if (errno || *end || number < min || number > max)
		return -EINVAL;
	*value = number;
	return 0;
}

/* Space-separated names; none at all is a legal set. */
static int parse_features(char *text, uint32_t *features)
{
	const size_t count = sizeof(feature_names) / sizeof(*feature_names);
	char *save, *word;

	*features = 0;
	for (word = strtok_r(text, " \t", &save); word;
	     word = strtok_r(NULL, " \t", &save)) {
		size_t i = 0;

		while (i < count && strcmp(word, feature_names[i].name))
			i++;
		if (i == count)
			return -EINVAL;
		*features |= feature_names[i].bit;
	}
	return 0;
}

/* The first OPP of a file replaces the built-in table. */
static int set_opp(struct m6_profile *profile, const char *key,
		   const char *value, bool *own_opps)
{
	struct m6_opp opp;

	if (parse_number(key, 1, 100000, &opp.mhz) ||
	    parse_number(value, 1, 5000, &opp.millivolt))
		return -EINVAL;
	if (!*own_opps)
		profile->opp_count = 0;
	*own_opps = true;
	if (profile->opp_count == M6_OPPS_MAX)
		return -EINVAL;
	if (profile->opp_count &&
	    profile->opp[profile->opp_count - 1].mhz >= opp.mhz)
		return -EINVAL;
	profile->opp[profile->opp_count++] = opp;
	return 0;
}

static int set_key(struct m6_profile *profile, const char *section,
		   const char *key, char *value, bool *own_opps)
{
	if (!strcmp(section, "opp"))
		return set_opp(profile, key, value, own_opps);
	if (!strcmp(section, "device") && !strcmp(key, "firmware_version"))
		return m6_version_parse(value, &profile->firmware_version);
	if (!strcmp(section, "device") && !strcmp(key, "features"))
		return parse_features(value, &profile->features);
	for (size_t i = 0; i < KEYS; i++) {
		const struct profile_key *k = &profile_keys[i];

		if (!strcmp(section, k->section) && !strcmp(key, k->key))
			return parse_number(value, k->min, k->max,
					    profile_value(profile, k));
	}
	return -ENOENT;
}

static char *trim(char *text)
{
	size_t bytes;

	while (isspace((unsigned char)*text))
		text++;
	bytes = strlen(text);
	while (bytes && isspace((unsigned char)text[bytes - 1]))
		text[--bytes] = 0;
	return text;
}

/* "[section]" changes @section, "key = value" is set, "#" is a comment. */
static int parse_line(struct m6_profile *profile, char *line,
		      char section[LINE_BYTES], bool *own_opps)
{
	char *value, *hash = strchr(line, '#');
	size_t bytes;

	if (hash)
		*hash = 0;
	line = trim(line);
	bytes = strlen(line);
	if (!bytes)
		return 0;
	if (line[0] == '[') {
		if (line[bytes - 1] != ']')
			return -EINVAL;
		line[bytes - 1] = 0;
		memcpy(section, line + 1, bytes - 1);
		return 0;
	}
	value = strchr(line, '=');
	if (!value)
		return -EINVAL;
	*value++ = 0;
	return set_key(profile, section, trim(line), trim(value), own_opps);
}

/* What can only be judged once everything is known. */
static const char *profile_problem(const struct m6_profile *profile)
{
	if (!profile->opp_count)
		return "no operating point";
	if (!m6_profile_opp(profile, profile->throttle_mhz))
		return "throttle_mhz is not one of the operating points";
	if (profile->unthrottle_mc >= profile->throttle_mc ||
	    profile->throttle_mc >= profile->critical_mc)
		return "thermal trips are not in ascending order";
	return NULL;
}

int m6_profile_load(struct m6_profile *profile, const char *path,
		    char *error, unsigned int error_bytes)
{
	char line[LINE_BYTES], section[LINE_BYTES] = "";
	struct m6_profile next = *profile;
	unsigned int number = 0;
	bool own_opps = false;
	const char *problem;
	FILE *file;
	int err = 0;

	file = fopen(path, "re");
	if (!file) {
		err = -errno;
		snprintf(error, error_bytes, "%s: %s", path, strerror(-err));
		return err;
	}
	while (!err && fgets(line, sizeof(line), file)) {
		number++;
		err = parse_line(&next, line, section, &own_opps);
	}
	fclose(file);
	if (err) {
		snprintf(error, error_bytes, "%s:%u: %s", path, number,
			 err == -ENOENT ? "no such key in this section" :
					  "not a value this key can have");
		return err;
	}
	problem = profile_problem(&next);
	if (problem) {
		snprintf(error, error_bytes, "%s: %s", path, problem);
		return -EINVAL;
	}
	*profile = next;
	return 0;
}

int m6_profile_set(struct m6_profile *profile, const char *setting)
{
	struct m6_profile next = *profile;
	char line[LINE_BYTES];
	char *key, *value;
	bool own_opps = true;
	int err;

	if (strlen(setting) >= sizeof(line))
		return -EINVAL;
	strcpy(line, setting);
	key = strchr(line, '.');
	value = key ? strchr(key, '=') : NULL;
	if (!value)
		return -EINVAL;
	*key++ = 0;
	*value++ = 0;
	err = set_key(&next, trim(line), trim(key), trim(value), &own_opps);
	if (err)
		return err;
	if (profile_problem(&next))
		return -EINVAL;
	*profile = next;
	return 0;
}
