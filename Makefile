# SPDX-License-Identifier: MIT
#
# The front door. Everything runs in the toolbox (toolbox/run), which the
# first target makes; the host needs make, git, and root or sudo once.

ARCH ?= arm64
MEM ?= 2G
PORT ?= 8080
PROMPT ?= What is the M6 mini board?

export ARCH MEM PORT PROMPT KARGS EMU_ARGS CMD SMP TIMEOUT V W CI JOBS

RUN := toolbox/run
BUILD := $(RUN) toolbox/build

# Where what runs on the board is built.
ifeq ($(ARCH),x86_64)
guest := host
else ifeq ($(ARCH),arm64)
guest := arm64
else
$(error unknown ARCH=$(ARCH); known: arm64, x86_64)
endif

.DEFAULT_GOAL := all
.PHONY: all help toolbox modules model demo serve vm test check test-unit \
	test-vm test-server test-lint bench install clean distclean

all: ## Build everything: host tools, emulator, board userspace, module, model
	@$(BUILD) host $(guest) modules-$(ARCH) model

demo: ## From nothing to an answer: build, boot the board, serve, ask PROMPT
	@$(BUILD) host $(guest) modules-$(ARCH) model
	@$(RUN) emulator/vm/demo

serve: ## The same, but stay up: server and page at http://localhost:PORT
	@$(BUILD) host $(guest) modules-$(ARCH) model
	@$(RUN) emulator/vm/demo --serve

vm: ## Boot the board and run CMD='...' there; a shell without CMD
	@$(BUILD) host $(guest) modules-$(ARCH)
	@$(RUN) emulator/vm/run

test: ## Every test, with one summary at the end
	@$(RUN) tests/run all

check: ## The quick part of the tests: no VM
	@$(RUN) tests/run check

test-lint: ## checkpatch, sparse, kernel-doc, shellcheck, SPDX lines
	@$(RUN) tests/run lint

test-unit: ## Unit tests under address and undefined-behaviour sanitizers
	@$(RUN) tests/run unit

test-vm: ## ioctl and board tests on the emulated board of ARCH
	@$(RUN) tests/run vm-$(ARCH)

test-server: ## Tests of the HTTP server, on the emulated board
	@$(RUN) tests/run server

bench: ## Benchmarks: experts in device time; pools, next to CMA and memcpy
	@$(BUILD) host $(guest) modules-$(ARCH) bench-$(ARCH)
	@$(RUN) tests/run bench

modules: ## m6npu.ko for ARCH, into build/ARCH/modules
	@$(BUILD) modules-$(ARCH)

model: ## The demo model, build/models/demo.npu
	@$(BUILD) host model

# Onto this machine only when it is of the architecture that was built.
install: ## Install module, server, tools and units for ARCH under DESTDIR
	@[ -n "$(DESTDIR)" ] || [ "$$(uname -m)" = $(ARCH:arm64=aarch64) ] || \
		{ echo "make install: this is no $(ARCH) machine; give" \
		       "DESTDIR=, the board's mounted root" >&2; exit 1; }
	@$(BUILD) $(guest) modules-$(ARCH) stage-$(ARCH)
	@cp -a build/stage/$(ARCH)/. "$(DESTDIR)/"

toolbox: ## Only make the toolbox
	@toolbox/create

clean: ## Remove what was built here (the toolbox stays)
	@rm -rf build

distclean: clean ## Remove the toolbox and its caches as well
	@toolbox/create --remove-all

help: ## This table
	@echo "Targets:"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r name text; do \
			printf '  %-14s%s\n' $$name "$$text"; done
	@echo
	@echo "Variables:"
	@printf '  %-14s%s\n' \
		ARCH "the board's: arm64 (default) or x86_64" \
		MEM "the guest's memory (default 2G; half is the NPU's)" \
		KARGS "more for the guest's kernel command line" \
		EMU_ARGS "options for the emulator (make vm CMD= EMU_ARGS=--help)" \
		PORT "of make serve (default 8080)" \
		PROMPT "what make demo asks" \
		CMD "what make vm runs on the board" \
		TIMEOUT "seconds for one boot with a command (default 600)" \
		JOBS "compiler processes (default: one per processor)" \
		M6_MIRROR "Debian mirror, when apt here names none" \
		M6_CACHE "where the toolbox is kept (default ~/.cache/m6npu)"
