package org.apache.spark.sql.execution;

import java.io.IOException;
import java.util.Iterator;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2;
import org.apache.spark.sql.execution.streaming.sources.WriteToMicroBatchDataSource;
import org.apache.spark.sql.internal.SQLConf;

/**
 * Chooses for each micro-batch, while it is planned, whether its code is generated: only where many rows pass through the JVM.
 * A batch of few records has few rows; so has one whose sources pack the records for operators in Python. The plan stays as it
 * is, except that a small batch omits some shuffles. Spark plans a batch on the thread of its query, whose session no other
 * query has.
 *
 * A query's session is the one with a batch: the setting BATCH has its number of records. What a program plans in that
 * session, in foreachBatch, is counted likewise, and has settings of its own. Other sessions keep theirs.
 */
public class SmallBatches extends Rule {
    private static final String WHOLE_STAGE = "spark.sql.codegen.wholeStage";
    private static final String FACTORIES = "spark.sql.codegen.factoryMode";
    private static final String BATCH = "spark.odradek.batchRecords";
    private static final String PACKED_COLUMNS = "__task, __rows";  // of `spark/reading/task_rows.py`
    private static final ObjectMapper JSON = new ObjectMapper();

    private final long recordsMax;

    public SmallBatches(long recordsMax) {
        this.recordsMax = recordsMax;
    }

    /** The queries that begin in a session from now on are planned with this rule. */
    public void addTo(org.apache.spark.sql.classic.SparkSession session) {
        org.apache.spark.sql.ExperimentalMethods methods = session.experimental();
        methods.extraOptimizations_$eq((scala.collection.immutable.Seq) methods.extraOptimizations().appended(this));
    }

    public TreeNode apply(TreeNode tree) {
        LogicalPlan plan = (LogicalPlan) tree;
        SQLConf conf = SQLConf.get();
        boolean streams = plan.isStreaming();
        if (!streams && !conf.contains(BATCH)) {
            return tree;
        }
        long batch = streams ? recordsMax + 1 : Long.parseLong(conf.getConfString(BATCH));
        long records = recordsOf(plan, batch);
        setCode(conf, hasFewRows(plan, records));
        if (!streams) {
            return tree;
        }
        conf.setConfString(BATCH, Long.toString(records));
        return isSmall(records) && conf.numShufflePartitions() == 1 ? inOneTask(plan) : plan;
    }

    /** The number of records that a micro-batch reads; more than a small batch has where its plan does not tell. */
    long recordCount(LogicalPlan plan) {
        return recordsOf(plan, recordsMax + 1);
    }

    boolean isSmall(long records) {
        return records <= recordsMax;
    }

    /** Tells whether few rows of a batch with this number of records pass through the JVM. */
    boolean hasFewRows(LogicalPlan plan, long records) {
        return isSmall(records) || isPacked(plan);
    }

    /** Sets what the rule sets, for a micro-batch of few rows whose plan has passed the rule before. */
    void choose(long records) {
        SQLConf conf = SQLConf.get();
        setCode(conf, true);
        conf.setConfString(BATCH, Long.toString(records));
    }

    private static void setCode(SQLConf conf, boolean fewRows) {
        conf.setConfString(WHOLE_STAGE, fewRows ? "false" : "true");
        conf.setConfString(FACTORIES, fewRows ? "NO_CODEGEN" : "FALLBACK");
    }

    /**
     * Tells whether the sources of a plan pack the records for the tasks of an operator with state, and its sink gets them as that
     * operator packs them: then a row is some megabytes of records, whatever the size of the batch. Any operator that is not
     * known to leave rows packed may unpack them.
     */
    private boolean isPacked(LogicalPlan plan) {
        if (plan instanceof StreamingDataSourceV2ScanRelation) {
            return PACKED_COLUMNS.equals(namesOf(plan));
        }
        if (plan instanceof LocalRelation) {  // a source without new records, or the tasks whose state is restored
            return ((LocalRelation) plan).data().size() <= recordsMax;
        }
        if (
            !(plan instanceof WriteToMicroBatchDataSource
                || plan instanceof WriteToDataSourceV2
                || plan instanceof TransformWithStateInPySpark
                || plan instanceof Union
                || plan instanceof Project
                || plan instanceof SubqueryAlias
                || plan instanceof Repartition)
        ) {
            return false;
        }
        scala.collection.Iterator children = plan.children().iterator();
        while (children.hasNext()) {
            if (!isPacked((LogicalPlan) children.next())) {
                return false;
            }
        }
        return true;
    }

    private static String namesOf(LogicalPlan plan) {
        StringBuilder names = new StringBuilder();
        scala.collection.Iterator columns = plan.output().iterator();
        while (columns.hasNext()) {
            names.append(names.length() == 0 ? "" : ", ");
            names.append(((Attribute) columns.next()).name());
        }
        return names.toString();
    }

    private long recordsOf(LogicalPlan plan, long batch) {
        long records = recordCount(plan, batch);
        scala.collection.Iterator subqueries = plan.subqueriesAll().iterator();
        while (subqueries.hasNext() && records <= recordsMax) {
            records += recordCount((LogicalPlan) subqueries.next(), batch);
        }
        return records;
    }

    /**
     * The same plan, whose operators with state run in the task that reads their rows: a shuffle to the only partition of their
     * state would be a stage of its own. Where the state has more partitions, Spark shuffles in spite of it.
     */
    private static LogicalPlan inOneTask(LogicalPlan plan) {
        scala.collection.mutable.ListBuffer children = new scala.collection.mutable.ListBuffer();
        boolean isChanged = false;
        boolean isInput = plan instanceof TransformWithStateInPySpark;
        scala.collection.Iterator old = plan.children().iterator();
        while (old.hasNext()) {
            LogicalPlan before = (LogicalPlan) old.next();
            LogicalPlan child = inOneTask(before);
            if (isInput && !(child instanceof Repartition)) {
                child = new Repartition(1, false, child);
            }
            isInput = false;  // its second child is the state that it begins with
            isChanged = isChanged || child != before;
            children.addOne(child);
        }
        return isChanged ? (LogicalPlan) plan.withNewChildren(children.toList()) : plan;
    }

    /** The number of records that the leaves of a plan have; more than a small batch has where one does not tell. */
    private long recordCount(LogicalPlan plan, long batch) {
        long records = 0;
        scala.collection.Iterator leaves = plan.collectLeaves().iterator();
        while (leaves.hasNext() && records <= recordsMax) {
            records += recordCountOfLeaf((LogicalPlan) leaves.next(), batch);
        }
        return records;
    }

    private long recordCountOfLeaf(LogicalPlan leaf, long batch) {
        if (leaf instanceof StreamingDataSourceV2ScanRelation) {
            StreamingDataSourceV2ScanRelation read = (StreamingDataSourceV2ScanRelation) leaf;
            return recordCount(read.startOffset(), read.endOffset());
        }
        if (leaf instanceof LocalRelation) {  // a stream without new records, too
            return ((LocalRelation) leaf).data().size();
        }
        if (leaf instanceof OneRowRelation) {
            return 1;
        }
        if (leaf.isStreaming()) {
            return recordsMax + 1;
        }
        if (leaf instanceof LogicalRDD && isBatch((LogicalRDD) leaf)) {
            return batch;
        }
        return knownRowCount(leaf);
    }

    /** Tells whether these are the rows that foreachBatch has: they come with the statistics of the plan that computes them. */
    private static boolean isBatch(LogicalRDD rows) {
        scala.Option originStats = (scala.Option) rows.otherCopyArgs().apply(1);
        return originStats.isDefined() && !rows.isCheckpointedInput();
    }

    private long knownRowCount(LogicalPlan leaf) {
        try {
            scala.Option count = leaf.stats().rowCount();
            if (count.isDefined()) {
                scala.math.BigInt rows = (scala.math.BigInt) count.get();
                return rows.isValidLong() ? Math.min(rows.toLong(), recordsMax + 1) : recordsMax + 1;
            }
        } catch (UnsupportedOperationException noStatistics) {  // a leaf that Spark plans without any, as a command's
            return recordsMax + 1;
        }
        return recordsMax + 1;
    }

    /** The number of records between two offsets of ours; one more than a small batch has where they do not tell. */
    private long recordCount(scala.Option start, scala.Option end) {
        if (start.isEmpty() || end.isEmpty()) {
            return recordsMax + 1;
        }
        try {
            JsonNode from = JSON.readTree(((Offset) start.get()).json());
            JsonNode to = JSON.readTree(((Offset) end.get()).json());
            return recordCount(from, to);
        } catch (IOException notJson) {
            return recordsMax + 1;
        }
    }

    /** Janino takes `path` for the interface's method, whose return type is wider. */
    private static JsonNode at(JsonNode node, String name) {
        return (JsonNode) node.path(name);
    }

    /** Offsets of other sources are numbers, or objects of other values: they do not tell how many records there are. */
    private long recordCount(JsonNode start, JsonNode end) {
        if (!end.isObject()) {
            return recordsMax + 1;
        }
        long count = 0;
        Iterator topics = end.fields();
        while (topics.hasNext()) {
            Map.Entry topic = (Map.Entry) topics.next();
            String name = (String) topic.getKey();
            if (name.startsWith("@")) {
                continue;
            }
            if (!((JsonNode) topic.getValue()).isObject()) {
                return recordsMax + 1;
            }
            Iterator partitions = ((JsonNode) topic.getValue()).fields();
            while (partitions.hasNext()) {
                Map.Entry partition = (Map.Entry) partitions.next();
                String number = (String) partition.getKey();
                JsonNode from = at(at(at(end, "@from"), name), number);
                if (!from.isNumber()) {
                    from = at(at(start, name), number);
                }
                JsonNode to = (JsonNode) partition.getValue();
                if (!from.isIntegralNumber() || !to.isIntegralNumber() || to.asLong() < from.asLong()) {
                    return recordsMax + 1;
                }
                count += to.asLong() - from.asLong();
                if (count < 0 || count > recordsMax) {
                    return recordsMax + 1;
                }
            }
        }
        return count;
    }
}
