"""Streams that cannot be read twice: told at the start, and refused where they would have to be."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import ConfigError, ResumeMismatchError

pytestmark = pytest.mark.spark


@pytest.fixture
def port() -> Iterator[int]:
    """A server that sends the same few lines to whoever connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connections.append(connection)
                connection.sendall(b"1\n2\n2\n")

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        for connection in connections:
            connection.close()


def test_a_socket_is_warned_about_and_its_run_can_neither_be_resumed_nor_changed(
    spark: SparkSession, tmp_path: Path, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()

    def query() -> ab.Query:
        engine = ab.Engine(spark, tmp_path / "checkpoint", processors=1)
        engine.register("S", lines.selectExpr("CAST(value AS BIGINT) AS k"))
        engine.register("R", rate.selectExpr("value AS k"))
        return engine.sql("SELECT S.k FROM S, R WHERE S.k = R.k")

    with caplog.at_level(logging.WARNING, "anabranch"):
        run = query().writeStream.format("noop").start()
    try:
        (warning,) = [event for event in run.events if event.kind == "warning"]
        assert "the stream S reads a socket" in warning.reason
        assert "cannot be resumed" in warning.reason
        assert f"warning: {warning.reason}" in caplog.messages
        while not run._live.results:
            assert run.exception() is None
        with pytest.raises(ConfigError, match="no query can be added: the stream S reads a socket"):
            run.add(run._live.engine.sql("SELECT R.k FROM R, S WHERE S.k + 1 = R.k").writeStream.format("noop"))
    finally:
        run.stop()
    with pytest.raises(ResumeMismatchError, match=r"cannot be resumed: the stream S reads a socket.*new checkpoint"):
        query().writeStream.format("noop").start()
