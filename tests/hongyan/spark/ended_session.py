"""A session that ends under its cycle: `python -m tests.hongyan.spark.ended_session context|java FOLDER`.
Prints the error of the next job, and `closed` once the session was closed without one."""

from __future__ import annotations

import os
import signal
import sys
from types import SimpleNamespace
from typing import Any, cast

from hongyan.spark.cycle import Cycle
from hongyan.spark.jars import jar_files
from spark_jobs.errors import NoSpark
from spark_jobs.session import close_session, open_session
from tests.spark_jobs.conftest import config_for


def main(end: str, folder: str) -> None:
    """Ends Spark's context, or its Java process."""
    spark = open_session(config_for(folder), "local[1]", jar_files((), print), {}, "ended")
    context = cast(Any, spark.sparkContext)
    if end == "context":
        context._jsc.sc().stop()
    else:
        os.kill(context._gateway.proc.pid, signal.SIGKILL)
        context._gateway.proc.wait()
    cycle = Cycle.__new__(Cycle)
    cycle._duty = cast(Any, SimpleNamespace(check=lambda: None))
    cycle._warehouse = cast(Any, SimpleNamespace(spark=spark))
    try:
        cycle.run(["ingest"])
    except NoSpark as exc:
        print(type(exc).__name__)
    close_session(spark)
    print("closed")


if __name__ == "__main__":
    main(*sys.argv[1:])
