# `make run` serves, `make test` runs every test, `make check` is the quick part. See CONTRIBUTING.md.
# These draw the same examples in every run. `make explore` searches at random, ten minutes by default, and prints how to
# replay what it finds: ARGS="--minutes 60", ARGS="--seed 7 --rounds 1 tests/machines/test_offsets.py".
PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,\
	$(shell $(p) -c 'import sys; print("$(p)") if sys.version_info >= (3, 11) else None' 2>/dev/null)))
BIN := .venv/bin
# In a process of their own: what other tests leave to a thread or to the collector of cycles would count, too.
MEASURE_MEMORY = $(shell grep -rl pytest.mark.memory --include="test_*.py" tests)
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN)
# Quick tests run in several processes, each with files of its own. One more than there are processors, because some tests
# wait; beside the long tests two less: each of them prepares all modules for the measurement of branches, 15 s of CPU.
PARTS := $(shell echo $$(($(PROCESSORS) < 7 ? $(PROCESSORS) + 1 : 8)))
BRANCH_PARTS := $(shell echo $$(($(PARTS) > 3 ? $(PARTS) - 2 : 1)))
QUICK_PROCESSES := $(addprefix quick-,$(shell seq $(PARTS)))
BRANCH_PROCESSES := $(addprefix branches-,$(shell seq $(BRANCH_PARTS)))
QUICK_MARKS := -m "not slow and not jvm and not memory"
SOURCES := pyproject.toml $(wildcard protocol/*.c protocol/*.h)

# Every broker of a test is a process of its own. Where Python may not keep what it has compiled (some machines and images
# say so), each of them compiles the product anew: half of its start.
unexport PYTHONDONTWRITEBYTECODE

# The order of sets is the same in every run.
export PYTHONHASHSEED := 0

.PHONY: run test long jars programs lint branches memory check quick quick-memory format wheel docs bench simulate mutants explore soak sanitize hostile compose-check screenshots clean
.PHONY: $(QUICK_PROCESSES) $(BRANCH_PROCESSES)

run: .venv/.installed
	@exec $(BIN)/odradek broker --override broker.id=0 --override listeners=PLAINTEXT://127.0.0.1:9092 \
		--override log.dirs=data --override group.initial.rebalance.delay.ms=0

# In this order. Make would keep what the long tests print until they end, so they print to descriptor 3.
test: .venv/.installed-dev
	@$(MAKE) --no-print-directory --jobs $(PARTS) --output-sync=line branches long lint memory 3>&1

long: jars programs
	@(: >&3) 2>/dev/null || exec 3>&1; \
		exec $(BIN)/python -m pytest -n 5 --dist loadgroup --no-loadscope-reorder -m "(slow or jvm) and not memory" >&3

jars:
	$(BIN)/python -m tests.jvm fetch

programs:
	$(BIN)/python -m tests.clients fetch

lint:
	$(BIN)/python -m tests.lint

branches: $(BRANCH_PROCESSES)
	@$(BIN)/python -m tests branches

$(BRANCH_PROCESSES): branches-%:
	$(BIN)/python -m pytest --part $*/$(BRANCH_PARTS) -p tests.branch_coverage $(QUICK_MARKS)

memory:
	$(BIN)/python -m pytest -m memory $(MEASURE_MEMORY)

check: .venv/.installed-dev
	@$(MAKE) --no-print-directory --jobs $(PARTS) --output-sync=line quick lint quick-memory

quick: $(QUICK_PROCESSES)

$(QUICK_PROCESSES): quick-%:
	$(BIN)/python -m pytest --part $*/$(PARTS) $(QUICK_MARKS)

quick-memory:
	$(BIN)/python -m pytest -m "memory and not slow and not jvm" $(MEASURE_MEMORY)

format: .venv/.installed-dev
	$(BIN)/ruff check --fix --quiet
	$(BIN)/ruff format --quiet

wheel: .venv/.installed-dev
	$(BIN)/python -m tests wheel

docs: .venv/.installed-dev
	$(BIN)/python -m mkdocs build --strict

bench: .venv/.installed-dev
	$(BIN)/python -m tests.jvm fetch
	$(BIN)/python -m tests.benchmarks $(ARGS)

simulate: .venv/.installed-dev
	$(BIN)/python -m tests simulate $(or $(ARGS),--seeds 20000)

mutants: .venv/.installed-dev
	$(BIN)/python -m tests simulate --mutant all $(ARGS)

explore: .venv/.installed-dev
	$(BIN)/python -m tests explore $(ARGS)

soak: .venv/.installed-dev
	$(BIN)/python -m tests.jvm fetch
	$(BIN)/python -m tests soak $(ARGS)

# The C codec engine, the functions for whole batches, the append, the reads, the frame handler and the streams clients
# with GCC's sanitizers, compared with Python. Python itself leaks at its end.
sanitize: .venv/.installed-dev
	CFLAGS="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer" \
		$(BIN)/python setup.py --quiet build_ext --force --build-lib build/sanitized --build-temp build/sanitized
	for compared in protocol.codec_differences protocol.batch_differences storage.append_differences broker.frame_differences protocol.read_differences; do \
		LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
			$(BIN)/python -m tests.$$compared --library build/sanitized $(ARGS) || exit 1; \
	done
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
		$(BIN)/python -m tests.streams.clients.differences --library build/sanitized

hostile: .venv/.installed-dev
	$(BIN)/python -m tests hostile $(ARGS)

compose-check: .venv/.installed-dev
	$(BIN)/python -m tests compose-check $(ARGS)

# Of docs/console.md; needs Chromium.
screenshots: .venv/.installed-dev
	$(BIN)/python -m tests.console.screenshots

clean:
	rm -rf build dist *.egg-info

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Odradek needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "making .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv

.venv/.installed: .venv/bin/python $(SOURCES)
	@echo "installing Odradek into .venv (once, about half a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# Most modules of these packages are never imported: compiling all takes as long as the rest of the installation.
.venv/.installed-dev: .venv/bin/python $(SOURCES)
	@echo "installing Odradek and what its tests need into .venv (once, about a minute)"
	@$(BIN)/python -m tests.installing '.[dev,streams,docs,release]'
	@touch $@ .venv/.installed
