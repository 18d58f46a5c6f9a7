"""Gives copies the timestamps of their original records, for which Spark's Kafka sink has no column.

The sink makes records without a time, and Kafka's producer sets the present one. But a producer passes each record
to its interceptors first (KIP-42), and the sink passes on every property of the producer. So a copy carries its time in
the header `odradek.timestamp`, and an interceptor of a few lines sets it as the record's time; the header stays. Spark
compiles Java at run time for its own queries: its compiler, Janino, makes the interceptor, and Spark sends the jar to
the executors. A topic whose message.timestamp.type is LogAppendTime has the broker's time all the same.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLASS: Final = "odradek.OriginalTimes"
_JAR: Final = "odradek-original-times.jar"
_SOURCE: Final = """
package odradek;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;

public class OriginalTimes implements ProducerInterceptor {
    public ProducerRecord onSend(ProducerRecord record) {
        Header header = record.headers().lastHeader("odradek.timestamp");
        if (header == null || header.value() == null) {
            return record;
        }
        long time = Long.parseLong(new String(header.value(), StandardCharsets.UTF_8));
        if (time < 0) {  // a record without a time cannot be produced again as one
            return record;
        }
        return new ProducerRecord(
            record.topic(), record.partition(), Long.valueOf(time), record.key(), record.value(), record.headers());
    }

    public void onAcknowledgement(RecordMetadata metadata, Exception failure) {
    }

    public void close() {
    }

    public void configure(Map configs) {
    }
}
"""


def sink_settings(spark: SparkSession) -> dict[str, str]:
    """Options of the Kafka sink that set records' times from their headers; sends the jar to the executors."""
    context: Any = spark.sparkContext._jsc.sc()
    if _JAR not in str(context.listJars()):
        folder = Path(tempfile.mkdtemp(prefix="odradek-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        with zipfile.ZipFile(folder / _JAR, "w") as jar:
            for name, code in _compiled(spark).items():
                jar.writestr(f"{name.replace('.', '/')}.class", code)
        context.addJar(str(folder / _JAR))
    return {"kafka.interceptor.classes": CLASS}


def _compiled(spark: SparkSession) -> dict[str, bytes]:
    """Class names and their bytes. The compiler uses the thread's class loader, which finds Kafka's classes."""
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    found = compiler.getBytecodes()
    return {str(name): bytes(found[name]) for name in found}
