/* SPDX-License-Identifier: GPL-2.0-only */
/* Only for CONFIG_DRM_DEBUG_MM. */
