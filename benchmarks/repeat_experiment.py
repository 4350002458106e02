import sys, os, time, json, shutil, glob, logging
from pathlib import Path
import pyarrow as pa, pandas as pd
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from sparkbolt.spark.session import make_session, for_lane

MODES = sys.argv[1].split(",")
MODE = MODES[0]  # reset | plain | shuffle | kill | verify
CKPT0 = sys.argv[2]
CKPT = CKPT0
REPEATS = int(sys.argv[3]) if len(sys.argv) > 3 else 1
VALUE = int(sys.argv[4]) if len(sys.argv) > 4 else 0  # kB of ballast per key at micro-batch 0


class R(DataSourceStreamReader):
    def initialOffset(self):
        return {"n": 0}

    def latestOffset(self, start, limit):
        return {"n": start["n"] + 1} if start["n"] < 4 else start

    def partitions(self, s, e):
        return [InputPartition((e["n"], i)) for i in range(2)]

    def read(self, p):
        n, i = p.value
        att = TaskContext.get().getLocalProperty("sparkbolt.attempt")
        yield (i, f"{n}|{att}")


class S(DataSource):
    @classmethod
    def name(cls):
        return "rep"

    def schema(self):
        return "dest int, frame string"

    def streamReader(self, schema):
        return R()


class P(StatefulProcessor):
    def __init__(self, lvl):
        self.lvl = lvl

    def init(self, h):
        self.m = h.getMapState("segments", "key string", "value binary")

    def handleInputRows(self, key, rows, timers):
        out = []
        for part in rows:
            for f in part["frame"]:
                got = [x for x in f.split(";")]
                seen = self.m.getValue(("log",))
                seen = bytes(seen[0]).decode() if seen else ""
                seen += (" " if seen else "") + got[0]
                self.m.updateValue(("log",), (seen.encode(),))
                n = int(got[0].split("|")[0])
                if n == 1 and VALUE:
                    for b in range(VALUE):
                        self.m.updateValue((f"b{b}",), (os.urandom(1024),))
                elif VALUE:
                    self.m.updateValue((f"b{n}",), (b"x" * 1024,))
                out.append(f"{got[0]};L{self.lvl}[{seen}]" + (";" + ";".join(got[1:]) if len(got) > 1 else ""))
        yield pd.DataFrame({"dest": [int(key[0])] * len(out), "frame": out})

    def close(self):
        pass


spark = for_lane(make_session("rep", "local[2]"), 2)
if os.environ.get("SNAP"):
    spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", os.environ["SNAP"])
if os.environ.get("MAINT"):
    spark.conf.set("spark.sql.streaming.stateStore.maintenanceInterval", os.environ["MAINT"])
spark.dataSource.register(S)
f = spark.readStream.format("rep").load()
for l in (1, 2):
    f = f.groupBy("dest").transformWithStateInPandas(
        statefulProcessor=P(l), outputStructType="dest int, frame string", outputMode="append", timeMode="none"
    )
jvm = spark.sparkContext._jvm


def shuffles(df):
    """ids of all shuffles behind the data frame's RDD"""
    rdd = df._jdf.queryExecution().toRdd()
    ids = set()
    todo = [rdd]
    seen = set()
    while todo:
        r = todo.pop()
        if r.id() in seen:
            continue
        seen.add(r.id())
        deps = r.dependencies()
        for i in range(deps.size()):
            d = deps.apply(i)
            if d.getClass().getSimpleName() == "ShuffleDependency":
                ids.add(d.shuffleId())
            todo.append(d.rdd())
    return ids


def query_execution():
    return q._jsq.lastProgress() if False else None


q = None
times = []


def end(df, n):
    sc = spark.sparkContext
    for att in range(REPEATS + 1 if n in (2,) else 1):
        t = time.perf_counter()
        if att and MODE != "plain":
            cleaner = spark.sparkContext._jsc.sc().cleaner().get()
            for s in shuffles(df):
                cleaner.doCleanupShuffle(s, True)
        if att and MODE in ("reset", "kill"):
            wrapped = spark._jsparkSession.streams().get(q.id if False else QID[0]) if False else None
            reset_accumulators(df)
        t1 = time.perf_counter()
        sc.setLocalProperty("sparkbolt.attempt", str(att))
        rows = df.toArrow().column("frame").to_pylist()
        t2 = time.perf_counter()
        times.append((n, att, round((t1 - t) * 1e3), round((t2 - t1) * 1e3)))
        print("n", n, "att", att, f"prep {1e3 * (t1 - t):.0f} ms, run {1e3 * (t2 - t1):.0f} ms", rows[0], flush=True)
        if MODE == "kill" and n == 2 and att == 1:
            os.kill(int(open("/tmp/txn-exp/jvm.pid").read()), 9)
            os.kill(os.getpid(), 9)


def reset_accumulators(df):
    qs = list(spark._jsparkSession.streams().active())
    plan = qs[0].streamingQuery().lastExecution().executedPlan()
    todo = [plan]
    c = 0
    while todo:
        p = todo.pop()
        ch = p.children()
        for i in range(ch.size()):
            todo.append(ch.apply(i))
        for m in p.getClass().getMethods():
            if m.getName().endswith("checkpointInfoAccumulator"):
                acc = m.invoke(p, None)
                if acc.value().size() or True:
                    c += 1
                    print("  accumulator", p.getClass().getSimpleName(), acc.value().size(), end=" ")
                    acc.reset()
                break
    print("reset", c)


open("/tmp/txn-exp/jvm.pid", "w").write(str(jvm.java.lang.ProcessHandle.current().pid()))
QID = [None]
for MODE in MODES:
    CKPT = CKPT0 + "-" + MODE
    print("==", MODE, flush=True)
    times.clear()
    q = f.writeStream.foreachBatch(end).option("checkpointLocation", CKPT).start()
    q.processAllAvailable()
    time.sleep(float(os.environ.get("LINGER", "0")))
    q.stop()
    print(times)
for c in sorted(glob.glob(CKPT + "/commits/[0-9]*"), key=lambda x: int(os.path.basename(x)))[-1:]:
    print(c, open(c).read())
print(times)
