# make demo    the tutorial's commands, then three logs cleaned, before and after
# make test    every test (short forms of the long ones)
# make check   format, lint, types, layers: what CI runs before the tests
# make bench   everything that is claimed of the speed, beside Kafka's cleaner, cp and SQLite: about twenty minutes
# make bench-guard    a minute of it, failing below a third of what must be: part of what CI runs
# make crash   crash tests in their long form
# make day     a day in the life of the daemon, in minutes, with real processes; SEED=1 for the same choices again
# make week    a simulated week of the daemon's choices over 5 000 logs under load: some minutes
# make random-logs N=2000 SEED=1    random logs, cleaned by Kafka (KAFKA=4.4: by that release) and by us, compared
# make left-overs N=2000 SEED=1    states that a stop in the middle of a swap can leave, settled by Kafka and by us, compared
# make goldens   rebuild the goldens that compare releases of Kafka: about four minutes
# make bounds        the kernels' tests and the goldens with every index checked, the long form
# make kafka-news    which releases of Kafka have not been compared yet
# make fuzz MINUTES=60 SEED=1    hostile files of every kind, and all commands and readers run on them in process
# make fuzz MINUTES=60 ARGS=--parsers    hostile bytes for single parsers, guided by the lines that they reach
# make fuzz-serve SECONDS=3600    spoilt frames sent to `cleaner serve`, beside a client that must not notice
# make mutants N=20000 SEED=1    mutated logs, cleaned by Kafka and by us, compared
# make simulate N=2000 SEED=1    worlds with kills, power cuts and disk errors, each led by a seed (docs/testing.md)
# make teeth SEEDS=2000          the first of so many seeds that finds each planted defect, as a table
# make soak HOURS=1 SEED=1    real processes on small real disks, with accidents (docs/testing.md); as root for all of them
# make image   the Dockerfile's steps in a bootstrapped Debian, and the cleaner in what they leave: about five minutes
# make dist    the sdist and the wheel into dist/, the same bytes wherever and whenever they are built
# make bundle  an archive with the wheels of all locked packages and an installer, for machines without a network
# make deb     the package for Debian 12 (ARGS='--python 3.13' for Debian 13)
# make packages    wheel, bundle and .deb built, installed and tried in a bootstrapped Debian, as root; the last release's state
# make stores  readers of buckets with fake-gcs-server, azurite and HDFS, which it fetches: some minutes
# make manifests   deploy/kubernetes anew from the chart in deploy/helm, which is linted, rendered and checked: builds helm once
# make lock    requirements.lock anew from pyproject.toml
#
# All of them install what they need: see tools/prepare.

BIN := .venv/bin
# Three test processes keep two cores busy: many tests wait for a JVM or a disk. A file's tests stay together, so that its
# broker starts once. In the order of their names the longest files (bulk, crash, kafka) come first and the short ones
# (unit) last, so that all end together.
PYTEST := $(BIN)/python -m pytest -n $(or $(WORKERS),3) --dist loadfile --no-loadscope-reorder
BOUNDS_CHECKED := NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/.cache/bounds-checked
N ?= 2000
SEED ?= $(shell date +%s)

FAKE_GCS := v1.56.1
AZURITE := 3.35.0

# Tools that tools/prepare fetches.
export PATH := $(CURDIR)/.cache/bin:$(PATH)

# Kernels are kept in the home directory. Without one that can be written to, they are kept in the clone.
ifeq ($(NUMBA_CACHE_DIR)$(CACHE_DIRECTORY)$(XDG_CACHE_HOME),)
ifneq ($(shell test -w "$$HOME" && echo writable),writable)
export NUMBA_CACHE_DIR := $(CURDIR)/.cache/kernels
endif
endif

.PHONY: demo test bounds warm check bench bench-guard crash day week random-logs goldens kafka-news left-overs fuzz fuzz-serve mutants simulate teeth soak image dist bundle deb packages stores manifests lock python spark tools

python:
	@tools/prepare python

spark:
	@tools/prepare spark

tools:
	@tools/prepare tests

demo: python
	@$(BIN)/python -m tools.demo

# Kernels first with every index checked, in machine code of its own; then everything. `make bounds` has the goldens, too.
test: tools warm
	$(BOUNDS_CHECKED) $(PYTEST) -m "kernels and not slow" --ignore=tests/golden $(ARGS)
	$(PYTEST) -m "not slow" $(ARGS)

bounds: tools warm
	$(BOUNDS_CHECKED) $(PYTEST) -m kernels $(ARGS)

# Once, not in both test processes at a time.
warm: spark
	@$(BOUNDS_CHECKED) $(BIN)/cleaner warm
	@$(BIN)/cleaner warm

check: spark
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: tools
	$(BIN)/python -m benchmarks $(ARGS)

bench-guard: tools
	@$(BIN)/cleaner warm
	$(BIN)/python -m benchmarks.guard

crash: tools
	$(PYTEST) tests/crash $(ARGS)

day: tools
	DAY_SEED=$(SEED) $(BIN)/python -m pytest -s tests/day $(ARGS)

week: python
	$(BIN)/python -m pytest -q tests/property/test_week_of_load.py $(ARGS)

random-logs: tools
	$(BIN)/python -m tests.kafka.random_logs --count $(N) --seed $(SEED) --kafka $(or $(KAFKA),4.3)

goldens: tools
	$(BIN)/python -m tests.kafka.make_goldens $(ARGS)

kafka-news: python
	@$(BIN)/python -m tools.kafka_news

left-overs: tools
	$(BIN)/python -m tests.kafka.left_overs --count $(N) --seed $(SEED)

mutants: tools
	$(BIN)/python -m tests.kafka.mutants --count $(N) --seed $(SEED) $(ARGS)

# With every index checked: a kernel that wrote outside of its arrays might be found out much later, or never.
fuzz: tools
	$(BOUNDS_CHECKED) $(BIN)/python -m tests.fuzz --seed $(SEED) --minutes $(or $(MINUTES),60) $(ARGS)

fuzz-serve: python
	SERVE_FUZZ_SECONDS=$(or $(SECONDS),3600) $(BIN)/python -m pytest -q tests/property/test_serve.py -k hostile

simulate: tools
	@$(BIN)/cleaner warm
	$(BIN)/python -m tests.simulation --seeds $(N) --first $(SEED) $(ARGS)

teeth: tools
	@$(BIN)/cleaner warm
	$(BIN)/python -m tests.simulation --teeth --seeds $(or $(SEEDS),2000) $(ARGS)

soak: tools
	@$(BIN)/cleaner warm
	$(BIN)/python -m tests.soak --hours $(or $(HOURS),1) --seed $(SEED) $(ARGS)

image:
	@tools/prepare image
	$(BIN)/python -m pytest tests/deploy/test_image.py $(ARGS)

dist: spark
	@$(BIN)/python -m tools.dist

bundle: spark
	@$(BIN)/python -m tools.bundle $(ARGS)

deb: spark
	@tools/prepare image
	@$(BIN)/python -m tools.deb $(ARGS)

packages: spark
	@tools/prepare image
	$(BIN)/python -m pytest tests/deploy/test_dist.py tests/deploy/test_bundle.py tests/deploy/test_deb.py tests/upgrades $(ARGS)

stores: tools
	GOBIN=$(CURDIR)/.cache/stores/bin go install github.com/fsouza/fake-gcs-server@$(FAKE_GCS)
	mvn -q -B dependency:copy-dependencies -f tests/support/minihdfs.xml -DoutputDirectory=$(CURDIR)/.cache/stores/hdfs
	npm install --silent --no-audit --no-fund --prefix .cache/stores azurite@$(AZURITE)
	$(BIN)/python -m pytest -q tests/integration/test_real_stores.py $(ARGS)

manifests: spark
	@tools/prepare helm
	@$(BIN)/python -m tools.manifests
	$(BIN)/python -m pytest tests/deploy/test_helm.py $(ARGS)

lock: python
	$(BIN)/python -m tools.lock
