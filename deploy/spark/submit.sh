#!/bin/sh
# The jobs on a Spark cluster: the driver here, the executors there. Executors run no Python.
#
#     MASTER=spark://spark-master:7077 deploy/spark/submit.sh run --every 10m
#     MASTER=yarn deploy/spark/submit.sh lost
#
# hongyan.toml needs  [spark] master = ""  (spark-submit says it) and a warehouse that all nodes reach, such as
# s3a://bucket/hongyan; give hadoop-aws by --packages for that one. No secret may stand on this command line: they are in
# the files that hongyan.toml names.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${MASTER:?say where the cluster is, such as spark://spark-master:7077}"
jars=$(python3 -m hongyan.spark.jars)
exec spark-submit \
    --master "$MASTER" \
    --deploy-mode client \
    --name hongyan \
    --jars "$(printf '%s,' "$jars"/*.jar | sed 's/,$//')" \
    --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
    --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
    --conf spark.sql.session.timeZone=UTC \
    --conf spark.io.encryption.enabled=true \
    --conf spark.network.crypto.enabled=true \
    --conf spark.authenticate=true \
    --conf spark.executor.memory="${EXECUTOR_MEMORY:-4g}" \
    "$here/hongyan_spark.py" "$@"
