# Not for a live broker's log directory: the cleaner serves one that a writer of its own kind, or nobody, writes to.
#
#   docker build -t cleaner .                        as a sidecar: Python and the cleaner
#   docker build -t cleaner:spark --target spark .   with Spark and a Java runtime, 700 MB more
#   docker run --read-only --tmpfs /tmp -v cleaner-state:/var/lib/cleaner \
#       -v /srv/logs:/data -e CLEANER_LOG_DIRS=/data cleaner
#
# It runs as 1000:1000, the user of Kafka's own image. Files it replaces must belong to whoever reads them: where the log
# dirs belong to another user, run it as that one (--user). Nothing needs to be written but /data, /var/lib/cleaner, /tmp.
# The state is one directory below its volume: others may be let into the volume, and nobody into the state.

FROM debian:bookworm-slim AS base
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --user-group --home-dir /nonexistent --shell /usr/sbin/nologin cleaner
ENV PATH=/opt/cleaner/bin:$PATH \
    NUMBA_CACHE_DIR=/opt/cleaner/kernels \
    CLEANER_STATE_DIR=/var/lib/cleaner/state

FROM base AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY cleaner ./cleaner
# The versions of requirements.lock, and setuptools only as long as it is needed.
RUN python3 -m venv /opt/cleaner \
    && pip install --no-cache-dir --constraint requirements.lock setuptools \
    && pip install --no-cache-dir --constraint requirements.lock --no-build-isolation .
# Machine code for every x86-64-v2 or armv8-a with crc: no node compiles at its start. Root's, and nobody else may write.
RUN cleaner warm

FROM build AS build-spark
RUN pip install --no-cache-dir --constraint requirements.lock --no-build-isolation '.[spark]' \
    && pip uninstall -y setuptools pip

FROM build AS build-slim
RUN pip uninstall -y setuptools pip

FROM base AS spark
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -m 0750 -o 1000 -g 1000 /var/lib/cleaner
COPY --from=build-spark /opt/cleaner /opt/cleaner
COPY config/cleaner.properties /etc/cleaner/cleaner.properties
# Spark with nothing to write to but /tmp, under whatever user, and not reachable from outside.
ENV PYSPARK_PYTHON=/opt/cleaner/bin/python3 \
    SPARK_SUBMIT_OPTS="-Duser.home=/tmp -Djava.io.tmpdir=/tmp" \
    SPARK_LOCAL_DIRS=/tmp \
    SPARK_LOCAL_IP=127.0.0.1 \
    SPARK_USER=cleaner \
    HADOOP_USER_NAME=cleaner
USER 1000:1000
WORKDIR /
EXPOSE 9404
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["cleaner", "status", "--probe", "live"]
ENTRYPOINT ["cleaner"]
CMD ["run", "--config", "/etc/cleaner/cleaner.properties"]

FROM base AS slim
RUN install -d -m 0750 -o 1000 -g 1000 /var/lib/cleaner
COPY --from=build-slim /opt/cleaner /opt/cleaner
COPY config/cleaner.properties /etc/cleaner/cleaner.properties
USER 1000:1000
WORKDIR /
EXPOSE 9404
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["cleaner", "status", "--probe", "live"]
ENTRYPOINT ["cleaner"]
CMD ["run", "--config", "/etc/cleaner/cleaner.properties"]
