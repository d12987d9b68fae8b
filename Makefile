# pgscale: build, install and test with PGXS.
#
#   make demo            from a bare machine to a report: installs what is missing, runs bench/demo/run
#   make test            from a bare machine to a verdict; narrow it: make test FEATURE=sweeper, or by file:
#                        make test REGRESS="health" TAP="t/health_x.pl"
#                        JOBS=4: four TAP tests at a time (or four for each processor)
#                        AGAIN=3: up to three of them that fail are run once more, alone
#   make reference       writes doc/reference.md anew, from the catalog of a server with this build
#   make, make install   build and install for the server that PG_CONFIG names
#   make NUMA=no         without libnuma even if it is here
#   make installcheck    the SQL tests alone, as an ordinary user; results in build/regress
#   make dist            the zip for PGXN, of the last commit: build/pgscale-VERSION.zip
#   make release-check   all that must hold before a release; makes the packages: build/release; CHECK="pgxn rpm": only these;
#                        in a git checkout, on Debian 12, as root
#   make clean

EXTENSION = pgscale
MODULE_big = pgscale
release := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" pgscale.control)
# of three numbers, for those who distribute it
distribution = $(shell sed -n 's/^    "version": "\(.*\)",$$/\1/p' META.json)
DATA = $(sort $(wildcard sql/pgscale--*--*.sql)) sql/pgscale_pg_wait_sampling--1.0.sql
DATA_built = build/pgscale--$(release).sql
# sorted, so that the library of two builds is the same
SOURCES = $(sort $(wildcard src/*.c src/*/*.c src/*/*/*.c))
OBJS = $(SOURCES:.c=.o)

# numa needs buffers that nobody has used yet.
REGRESS = health numa privileges sampler lwlocks blockers trace archive sweeper buffer_usage os_cache writeback relocation relocation_plan tuning tuning_advice now fleet scalability metrics report
TAP = $(wildcard t/*.pl)
ifneq ($(FEATURE),)
REGRESS := $(filter $(FEATURE) $(FEATURE)_%,$(REGRESS))
TAP := $(wildcard t/$(FEATURE)_*.pl)
$(if $(REGRESS)$(TAP),,$(error no test is named after a feature "$(FEATURE)"))
endif

# Goals that work where no server and no pg_config exist yet: PGXS is not read for them. t/lib/setup.sh finds or installs a
# server and starts the goal's second half with the PG_CONFIG to use.
standalone = demo test reference dist release-check clean
ifneq ($(filter $(standalone),$(MAKECMDGOALS)),)

.NOTPARALLEL:
.PHONY: $(MAKECMDGOALS)
demo test:
	@t/lib/setup.sh $@ $(MAKE) --no-print-directory $@-here
reference:
	@t/lib/setup.sh test $(MAKE) --no-print-directory $@-here
dist:
	@mkdir -p build
	TZ=UTC git archive --format=zip --prefix=pgscale-$(distribution)/ -o build/pgscale-$(distribution).zip HEAD
release-check:
	@[ -x .ci/release/run ] || { echo 'make release-check needs a git checkout, Debian 12 and root; the zip does not have it' >&2; exit 1; }
	@.ci/release/run $(CHECK)
clean:
	rm -rf build pgscale.so
	find src \( -name '*.o' -o -name '*.bc' \) -delete
# Other goals named in the same command (make clean all) go to a make of their own.
$(filter-out $(standalone),$(MAKECMDGOALS)):
	@$(MAKE) --no-print-directory $@

else

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifeq ($(and $(PGXS),$(wildcard $(PGXS))),)
$(error no PGXS from "$(PG_CONFIG)": set PG_CONFIG to the pg_config of the server, or let "make demo" find or install one)
endif

# A file of src/ is included by its path there. The library's own version is that of the extension.
# libpq-fe.h is the client library's.
PG_CPPFLAGS = -Isrc -I$(libpq_srcdir) -DPGSCALE_VERSION='"$(release)"'
# PostgreSQL's own flags already say -Wall; the rest finds real mistakes without flagging PG_FUNCTION_ARGS and PG's headers.
PG_CFLAGS = -Wextra -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers -Wwrite-strings -Wstrict-prototypes
# A server has libpq for its walreceiver, and pg_config knows where, if that is its own.
SHLIB_LINK += $(libpq) -lm
# The library's own functions call each other directly, and the server's without a detour.  The sampler's tick runs on code
# that the cache has forgotten since the one before: a quarter of its time was such detours.
PG_CFLAGS += -fno-plt -fno-semantic-interposition
SHLIB_LINK += -Wl,-Bsymbolic-functions
# Bitcode for JIT inlining would need clang and gains nothing here: no function of pgscale is cheap and called per row.
ifneq ($(origin with_llvm),command line)
override with_llvm = no
endif
# A server's own --enable-depend would keep one list for all files of a name, whatever their folder; see build/flavour.
override autodepend = no

# The SQL tests start a server of their own, with the library preloaded. Everything they write is in build/regress.
REGRESS_OPTS = --temp-instance=build/regress/server --temp-config=t/regress.conf --outputdir=build/regress
REGRESS_PREP = build/regress
ENCODING = UTF8
NO_LOCALE = 1

include $(PGXS)

# Messages of assertions and debug information name a file by its path in the tree, wherever that lies: so two builds are the same.
ifeq ($(shell $(CC) -ffile-prefix-map=a=b -E -x c /dev/null >/dev/null 2>&1 && echo yes),yes)
override CFLAGS += -ffile-prefix-map='$(CURDIR)=.'
endif

# libnuma is used where a program can be linked with it.
NUMA ?= $(shell echo 'int main(void) {return numa_available();}' | \
	$(CC) $(CPPFLAGS) -include numa.h -include numaif.h -x c - -o /dev/null $(LDFLAGS) -lnuma 2>/dev/null && echo yes)
ifeq ($(NUMA),yes)
override CPPFLAGS += -DPGSCALE_LIBNUMA
SHLIB_LINK += -lnuma
endif

build/regress:
	mkdir -p $@

# The install script is made of parts, which lie beside the C files: the head, base/, the features in the order of
# src/modules.c, and what concerns all of them. The part that has a module's name comes first in its folder; views and
# bodies of BEGIN ATOMIC need what they use to stand before them. No part may be left out.
modules := $(shell sed -n 's/^\t&pgscale_\(.*\)_module,$$/\1/p' src/modules.c)
main_part = $(or $(firstword $(wildcard src/$1/$1.sql src/*/$1.sql src/*/*/$1.sql)),src/$1/$1.sql)
main_parts := $(foreach module,$(modules),$(call main_part,$(module)))
more_parts = $(filter-out $(main_parts),$(sort $(wildcard src/$1/*.sql src/$1/*/*.sql)))
parts := src/pgscale.sql $(sort $(wildcard src/base/*.sql)) \
	$(foreach module,$(modules),$(call main_part,$(module)) $(call more_parts,$(module))) \
	src/replication.sql src/health.sql src/reset.sql src/privileges.sql
part_files := $(shell find src -name '*.sql')
missing := $(filter-out $(part_files),$(parts))
$(if $(missing),$(error the install script needs $(missing): each module of src/modules.c has a part of its name))
unlisted := $(filter-out $(parts),$(part_files))
$(if $(unlisted),$(error the install script has no place for $(unlisted): a part lies in src/base or in the folder of a module))

# What was built with another value of these variables is built anew. PGXS tracks neither headers nor the server: a changed
# struct, or another major's pg_config, would link old objects into a library that crashes the server. And make itself does not
# see that a part was deleted.
define remembered
ifneq ($$($1),$$(file <build/$1))
.PHONY: build/$1
endif
build/$1:
	@$$(shell mkdir -p build)$$(file >$$@,$$($1)):
endef
flavour := $(VERSION) $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(LDFLAGS_SL) $(SHLIB_LINK) $(OBJS)
$(foreach value,flavour parts,$(eval $(call remembered,$(value))))
$(OBJS): build/flavour $(wildcard src/*.h src/*/*.h src/*/*/*.h)
$(DATA_built): build/parts $(parts)
	@awk 'FNR == 1 {print (NR == 1 ? "" : "\n") "-- " FILENAME "\n"} {print}' $(parts) >$@

ifeq ($(wildcard $(includedir_server)/postgres.h),)
.PHONY: no-headers
$(OBJS): no-headers
no-headers:
	@echo 'no server headers in $(includedir_server): install the development package of the server, or use the' \
	'PG_CONFIG=build/postgresql-N/pg_config that "make demo" and "make test" put here' >&2; exit 1
endif

.PHONY: demo-here test-here reference-here install-here
demo-here: install-here
	PG_CONFIG='$(PG_CONFIG)' exec bench/demo/run
test-here: install-here
	@PG_CONFIG='$(PG_CONFIG)' exec env MAKE='$(MAKE)' REGRESS='$(REGRESS)' TAP='$(TAP)' JOBS='$(JOBS)' AGAIN='$(AGAIN)' t/lib/run.sh
reference-here: install-here
	@PG_CONFIG='$(PG_CONFIG)' PGSCALE_WRITE_REFERENCE=1 exec env MAKE='$(MAKE)' REGRESS= TAP=t/pgscale_reference.pl t/lib/run.sh
# The build belongs to whoever runs make, the server's folders mostly to root.
install-here:
	@echo 'building and installing pgscale' >&2
	@$(MAKE) --no-print-directory -s -j$$(nproc) all
	@if [ -w '$(pkglibdir)' ] && [ -w '$(datadir)/extension' ]; then $(MAKE) --no-print-directory install; \
	else sudo $(MAKE) --no-print-directory install PG_CONFIG='$(PG_CONFIG)'; fi >build/install.log 2>&1 \
	|| { cat build/install.log >&2; exit 1; }

endif
