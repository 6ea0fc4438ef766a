package org.apache.spark.sql.execution;

import java.io.IOException;
import java.util.Iterator;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import org.apache.spark.sql.internal.SQLConf;

/**
 * Chooses for each micro-batch, while it is planned, whether its code is generated: only where it has many records. The
 * plan stays as it is. Spark plans a batch on the thread of its query, whose session no other query has.
 */
public class SmallBatches extends Rule {
    private static final String WHOLE_STAGE = "spark.sql.codegen.wholeStage";
    private static final String FACTORIES = "spark.sql.codegen.factoryMode";
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

    public TreeNode apply(TreeNode plan) {
        boolean streams = false;
        long records = 0;
        scala.collection.Iterator leaves = ((LogicalPlan) plan).collectLeaves().iterator();
        while (leaves.hasNext()) {
            Object leaf = leaves.next();
            if (leaf instanceof StreamingDataSourceV2ScanRelation) {
                StreamingDataSourceV2ScanRelation read = (StreamingDataSourceV2ScanRelation) leaf;
                streams = true;
                records += recordCount(read.startOffset(), read.endOffset());
            } else if (((LogicalPlan) leaf).isStreaming()) {
                streams = true;
                records = recordsMax + 1;
            }
        }
        if (streams) {
            boolean small = 0 <= records && records <= recordsMax;
            SQLConf conf = SQLConf.get();
            conf.setConfString(WHOLE_STAGE, small ? "false" : "true");
            conf.setConfString(FACTORIES, small ? "NO_CODEGEN" : "FALLBACK");
        }
        return plan;
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

    /** Janino takes `path` for that of the interface, which returns less. */
    private static JsonNode at(JsonNode node, String name) {
        return (JsonNode) node.path(name);
    }

    private long recordCount(JsonNode start, JsonNode end) {
        long count = 0;
        Iterator topics = end.fields();
        while (topics.hasNext()) {
            Map.Entry topic = (Map.Entry) topics.next();
            String name = (String) topic.getKey();
            if (name.startsWith("@")) {
                continue;
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
                if (!from.isNumber() || !to.isNumber() || to.asLong() < from.asLong()) {
                    return recordsMax + 1;
                }
                count += to.asLong() - from.asLong();
                if (count > recordsMax) {
                    return recordsMax + 1;
                }
            }
        }
        return count;
    }
}
