# A broker as a container. Properties come from KAFKA_… variables, as in Apache Kafka's own image, or KAFKA_CFG_…:
#
#     docker build -t odradek . && docker run --rm -p 9092:9092 odradek
#
# The broker writes to its volume and nowhere else, so `docker run --read-only` works. There is no folder for temporary
# files: the volume is the log directory, in which Kafka accepts no foreign folder.
#
# docker-compose.yml runs three of them with ZooKeeper.

FROM python:3.13-slim AS build
# One small C extension; without a compiler the install would take its pure-Python fallback.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY odradek ./odradek
COPY broker ./broker
COPY protocol ./protocol
COPY storage ./storage
COPY streams ./streams
COPY spark_jobs ./spark_jobs
RUN python -m venv /opt/odradek && /opt/odradek/bin/pip install --no-cache-dir --disable-pip-version-check .

# With Java, Spark, its Kafka connector and the streams runtime, for `docker compose run pipeline`. A run needs no network
# but that of the brokers.
FROM build AS pipeline
RUN apt-get update && apt-get install --yes --no-install-recommends default-jre-headless && rm -rf /var/lib/apt/lists/*
RUN /opt/odradek/bin/pip install --no-cache-dir --disable-pip-version-check '.[streams,spark]' matplotlib
# Outside of /source, whose folder odradek would hide the installed package.
WORKDIR /report
RUN /opt/odradek/bin/python -m odradek.spark_jobs.fetch_connector /opt/odradek/connector \
    && rm -rf /root/.ivy2* /root/.cache
ENV ODRADEK_SPARK_JARS=/opt/odradek/connector
ENTRYPOINT ["/opt/odradek/bin/python", "-m", "odradek.spark_jobs.pipeline"]

FROM python:3.13-slim
COPY --from=build /opt/odradek /opt/odradek
RUN useradd --system --uid 1000 --user-group --no-create-home odradek \
    && install --directory --owner=odradek --group=odradek /etc/odradek \
    && install --directory --owner=odradek --group=odradek /var/lib/odradek
ENV PATH=/opt/odradek/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    KAFKA_LISTENERS=PLAINTEXT://:9092 \
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    KAFKA_LOG_DIRS=/var/lib/odradek
USER odradek
VOLUME /var/lib/odradek
EXPOSE 9092
# Asks the listener that KAFKA_LISTENERS names, whichever port it has.
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=3 CMD ["odradek", "health", "--from-environment"]
ENTRYPOINT ["odradek"]
CMD ["broker", "--from-environment"]
