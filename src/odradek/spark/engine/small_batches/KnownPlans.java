package org.apache.spark.sql.execution;

import java.lang.reflect.Field;
import java.util.ArrayDeque;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Pattern;

import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.optimizer.Optimizer;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.V2Writes$;
import org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.execution.streaming.sources.WriteToMicroBatchDataSource;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SessionState;

/**
 * Analyzes and optimizes the plan of a query's micro-batches of few rows once, and chooses its physical operators once. Spark does
 * so for each batch, though the plans of two batches differ in the batch's number and the offsets that are read only. A plan that
 * equals an earlier one in all else gets that one's result, with its own offsets. All other plans are planned in full: plans of
 * batches of many rows, and plans that read anything but streams and rows within the plan, or whose expressions depend on the time
 * of planning: current_timestamp(), or the texts 'now' and '10:30' as timestamps.
 *
 * It is a rule of the optimizer that changes no plan: with the first batch of a query, it puts an analyzer, an optimizer and a
 * strategy that remember into the session that Spark has cloned for this query. What Spark does with a physical plan after that
 * (shuffles, state, watermarks) it does for each batch.
 */
public class KnownPlans extends Rule {
    private static final AtomicLong OPTIMIZED = new AtomicLong();
    private static final AtomicLong OPERATORS = new AtomicLong();
    private static final Field ANALYZER = field("analyzer");
    private static final Field OPTIMIZER = field("optimizer");

    private final SmallBatches sizes;

    public KnownPlans(SmallBatches sizes) {
        this.sizes = sizes;
    }

    /** The queries that begin in a session from now on are planned with this rule. */
    public void addTo(org.apache.spark.sql.classic.SparkSession session) {
        org.apache.spark.sql.ExperimentalMethods methods = session.experimental();
        methods.extraOptimizations_$eq((scala.collection.immutable.Seq) methods.extraOptimizations().appended(this));
    }

    /** The number of batches of this JVM whose plan was not optimized again. */
    public static long reuseCount() {
        return OPTIMIZED.get();
    }

    /** The number of batches of this JVM whose operators were not chosen again. */
    public static long operatorReuseCount() {
        return OPERATORS.get();
    }

    static void countReuse() {
        OPTIMIZED.incrementAndGet();
    }

    static void countOperatorReuse() {
        OPERATORS.incrementAndGet();
    }

    public TreeNode apply(TreeNode tree) {
        if (tree instanceof WriteToDataSourceV2 && ((LogicalPlan) tree).isStreaming()) {
            scala.Option session = org.apache.spark.sql.classic.SparkSession.getActiveSession();
            if (session.isDefined()) {
                remember((org.apache.spark.sql.classic.SparkSession) session.get());
            }
        }
        return tree;
    }

    private void remember(org.apache.spark.sql.classic.SparkSession session) {
        SessionState state = session.sessionState();
        Analyzer analyzer = state.analyzer();
        Optimizer optimizer = state.optimizer();
        if (optimizer instanceof OptimizerWithMemory) {
            return;
        }
        try {
            ANALYZER.set(state, new AnalyzerWithMemory(state.catalogManager(), analyzer));
            OPTIMIZER.set(state, new OptimizerWithMemory(state.catalogManager(), optimizer, sizes));
        } catch (IllegalAccessException refused) {
            throw new IllegalStateException(refused);  // the fields are accessible, or the class has not been initialized
        }
        org.apache.spark.sql.ExperimentalMethods methods = state.experimentalMethods();
        methods.extraStrategies_$eq(
            (scala.collection.immutable.Seq) methods.extraStrategies().appended(new StrategyWithMemory(session, sizes))
        );
    }

    private static Field field(String name) {
        try {
            Field field = SessionState.class.getDeclaredField(name);
            field.setAccessible(true);
            return field;
        } catch (NoSuchFieldException other) {
            throw new IllegalStateException(other);
        }
    }
}

/** An analyzer that returns what it returned for the same plan with other offsets. */
class AnalyzerWithMemory extends Analyzer {
    private final Analyzer own;
    private final PlanMemory memory = new PlanMemory();

    AnalyzerWithMemory(CatalogManager catalogs, Analyzer own) {
        super(catalogs, Analyzer.$lessinit$greater$default$2(), Analyzer.$lessinit$greater$default$3());
        this.own = own;
    }

    public Analyzer withCatalogManager(CatalogManager catalogs) {
        return own.withCatalogManager(catalogs);
    }

    public LogicalPlan execute(LogicalPlan plan) {
        return own.execute(plan);
    }

    public void checkAnalysis(LogicalPlan plan) {
        own.checkAnalysis(plan);
    }

    public LogicalPlan executeAndCheck(LogicalPlan plan, QueryPlanningTracker tracker) {
        if (plan.analyzed() || !PlanMemory.holds(plan)) {
            return own.executeAndCheck(plan, tracker);
        }
        LogicalPlan query = (LogicalPlan) memory.resultFor(plan);
        if (query != null) {
            LogicalPlan analyzed = PlanMemory.withQuery(plan, PlanMemory.withReads(query, PlanMemory.reads(plan)));
            analyzed.setAnalyzed();
            return analyzed;
        }
        LogicalPlan result = own.executeAndCheck(plan, tracker);
        if (result instanceof WriteToMicroBatchDataSource && PlanMemory.isSameSink(plan, result)) {
            LogicalPlan analyzed = ((WriteToMicroBatchDataSource) result).query();
            if (PlanMemory.reads(plan).keySet().containsAll(PlanMemory.reads(analyzed).keySet())) {
                memory.add(plan, analyzed);
            }
        }
        return result;
    }
}

/** An optimizer that returns for a batch of few rows what it returned for the same plan with other offsets. */
class OptimizerWithMemory extends Optimizer {
    private final Optimizer own;
    private final SmallBatches sizes;
    private final PlanMemory small = new PlanMemory();
    private final PlanMemory packed = new PlanMemory();  // of batches of many records: none of them is to run in one task

    OptimizerWithMemory(CatalogManager catalogs, Optimizer own, SmallBatches sizes) {
        super(catalogs);
        this.own = own;
        this.sizes = sizes;
    }

    public TreeNode execute(TreeNode plan) {
        return own.execute(plan);
    }

    public TreeNode executeAndTrack(TreeNode tree, QueryPlanningTracker tracker) {
        LogicalPlan plan = (LogicalPlan) tree;
        if (!PlanMemory.holds(plan)) {
            return own.executeAndTrack(plan, tracker);
        }
        long records = sizes.recordCount(plan);
        if (!sizes.hasFewRows(plan, records)) {
            return own.executeAndTrack(plan, tracker);
        }
        PlanMemory memory = sizes.isSmall(records) ? small : packed;
        LogicalPlan query = (LogicalPlan) memory.resultFor(plan);
        if (query != null) {
            LogicalPlan write = V2Writes$.MODULE$.apply(plan);  // the sink's own write of this batch
            if (write instanceof WriteToDataSourceV2 && isQueryOf(plan, write)) {
                sizes.choose(records);
                KnownPlans.countReuse();
                return PlanMemory.withQuery(write, PlanMemory.withReads(query, PlanMemory.reads(plan)));
            }
        }
        LogicalPlan result = (LogicalPlan) own.executeAndTrack(plan, tracker);
        if (query == null && result instanceof WriteToDataSourceV2) {
            LogicalPlan optimized = ((WriteToDataSourceV2) result).query();
            if (
                PlanMemory.reads(plan).keySet().containsAll(PlanMemory.reads(optimized).keySet())
                && !optimized.containsPattern(TreePattern.PLAN_EXPRESSION())  // a join's filter reads the batch's offsets, too
                && !TimeOfPlanning.isIn(plan)
            ) {
                memory.add(plan, optimized);
            }
        }
        return result;
    }

    /** Tells whether a sink writes the rows as they are: some want them sorted or divided, which is part of their plan. */
    private static boolean isQueryOf(LogicalPlan plan, LogicalPlan write) {
        return ((WriteToDataSourceV2) write).query() == ((WriteToMicroBatchDataSource) plan).query();
    }
}

/**
 * Texts that the optimizer reads as times, and as other ones in each batch: 'now' and 'today' are special to Spark, and a time
 * of day without a date is one of today.
 */
class TimeOfPlanning {
    private static final Pattern DATE = Pattern.compile("[+-]?[0-9]{4,7}(-[0-9].*)?");

    /** Tells whether an expression of a plan may be such a text. */
    static boolean isIn(LogicalPlan plan) {
        return mayCast(plan)
            && (isInAny(plan.expressions().iterator()) || isInAny(plan.children().iterator()));
    }

    private static boolean isInAny(scala.collection.Iterator nodes) {
        while (nodes.hasNext()) {
            Object node = nodes.next();
            if (node instanceof LogicalPlan ? isIn((LogicalPlan) node) : isIn((Expression) node)) {
                return true;
            }
        }
        return false;
    }

    private static boolean isIn(Expression expression) {
        return expression.containsPattern(TreePattern.CURRENT_LIKE())  // of a replacement, which is no child
            || mayCast(expression)
            && (expression instanceof Cast && dependsOnTime((Cast) expression)
                || expression instanceof RuntimeReplaceable && isIn(((RuntimeReplaceable) expression).replacement())
                || isInAny(expression.children().iterator()));
    }

    /** Functions such as to_timestamp become casts while they are optimized. */
    private static boolean mayCast(TreeNode node) {
        return node.containsPattern(TreePattern.CAST()) || node.containsPattern(TreePattern.RUNTIME_REPLACEABLE());
    }

    private static boolean dependsOnTime(Cast cast) {
        String target = cast.dataType().catalogString();
        if (!target.contains("date") && !target.contains("timestamp")) {
            return false;
        }
        Expression child = cast.child();
        String source = child.dataType().catalogString();
        if (source.contains("time(")) {  // a time of day
            return true;
        }
        return source.contains("string") && child.foldable() && !(child instanceof Literal && hasDate((Literal) child));
    }

    private static boolean hasDate(Literal text) {
        return text.value() == null || DATE.matcher(text.value().toString().trim()).matches();
    }
}

/** A strategy that returns for a batch of few rows the operators that it returned for the same plan with other offsets. */
class StrategyWithMemory extends SparkStrategy {
    private final org.apache.spark.sql.classic.SparkSession session;
    private final SmallBatches sizes;
    private final PlanMemory small = new PlanMemory();
    private final PlanMemory packed = new PlanMemory();
    private boolean isPlanning;  // by Spark's strategies, which ask this one, too

    StrategyWithMemory(org.apache.spark.sql.classic.SparkSession session, SmallBatches sizes) {
        this.session = session;
        this.sizes = sizes;
    }

    public scala.collection.immutable.Seq apply(LogicalPlan plan) {
        scala.collection.mutable.ListBuffer plans = new scala.collection.mutable.ListBuffer();
        if (!isPlanning && plan instanceof ReturnAnswer) {
            SparkPlan planned = planned(((ReturnAnswer) plan).child());
            if (planned != null) {
                plans.addOne(planned);
            }
        }
        return plans.toList();
    }

    /** The operators of a batch; null where they are for Spark to choose. */
    private SparkPlan planned(LogicalPlan plan) {
        if (
            !(plan instanceof WriteToDataSourceV2)
            || !PlanMemory.holds(plan)
            || SQLConf.get().adaptiveExecutionEnabled()  // which plans again from the logical plan, while a batch runs
            || !sizes.hasFewRows(plan, sizes.recordCount(plan))
        ) {
            return null;
        }
        WriteToDataSourceV2 write = (WriteToDataSourceV2) plan;
        Map reads = PlanMemory.reads(plan);
        PlanMemory memory = sizes.isSmall(sizes.recordCount(plan)) ? small : packed;
        WriteToDataSourceV2Exec known = (WriteToDataSourceV2Exec) memory.resultFor(plan);
        if (known != null) {
            SparkPlan query = withScans(known.query(), reads);
            if (!readsAll(query, reads)) {
                return null;
            }
            KnownPlans.countOperatorReuse();
            return known.copy(write.batchWrite(), known.refreshCache(), query, write.customMetrics(), known.transaction());
        }
        SparkPlanner planner = plannerOfBatch();
        if (planner == null) {
            return null;
        }
        SparkPlan planned;
        isPlanning = true;
        try {
            planned = QueryExecution.createSparkPlan(planner, plan);
        } finally {
            isPlanning = false;
        }
        if (memory == small) {
            planned = RowsInJvm.in(planned);
        }
        if (planned instanceof WriteToDataSourceV2Exec && readsAll(planned, reads)) {
            memory.add(plan, planned);
        }
        return planned;
    }

    /** The planner of the batch that is planned now; it knows the operators of streams, and the session's does not. */
    private SparkPlanner plannerOfBatch() {
        String id = session.sparkContext().getLocalProperty(StreamExecution.QUERY_ID_KEY());
        if (id == null) {
            return null;
        }
        StreamExecution query = (StreamExecution) session.sharedState().activeStreamingQueries().get(UUID.fromString(id));
        return query == null || query.lastExecution() == null ? null : query.lastExecution().planner();
    }

    /** Tells whether a plan reads nothing but these reads, from their very offsets. */
    private static boolean readsAll(SparkPlan plan, Map reads) {
        scala.collection.Iterator leaves = plan.collectLeaves().iterator();
        while (leaves.hasNext()) {
            Object leaf = leaves.next();
            if (leaf instanceof MicroBatchScanExec) {
                MicroBatchScanExec scan = (MicroBatchScanExec) leaf;
                StreamingDataSourceV2ScanRelation read = (StreamingDataSourceV2ScanRelation) reads.get(scan.stream());
                if (read == null || scan.start() != read.startOffset().get() || scan.end() != read.endOffset().get()) {
                    return false;
                }
            }
        }
        return true;
    }

    /**
     * The same operators, with the offsets of other reads of their streams. Two scans of a stream are equal to Spark, whatever
     * their offsets, and withNewChildren returns an operator as it was where its new children equal the old.
     */
    private static SparkPlan withScans(SparkPlan plan, Map reads) {
        if (plan instanceof MicroBatchScanExec) {
            MicroBatchScanExec before = (MicroBatchScanExec) plan;
            StreamingDataSourceV2ScanRelation now = (StreamingDataSourceV2ScanRelation) reads.get(before.stream());
            MicroBatchScanExec scan = before.copy(
                before.output(),
                before.scan(),
                before.stream(),
                (org.apache.spark.sql.connector.read.streaming.Offset) now.startOffset().get(),
                (org.apache.spark.sql.connector.read.streaming.Offset) now.endOffset().get(),
                before.keyGroupedPartitioning(),
                before.ordering()
            );
            scan.setLogicalLink(now);
            scan.inputPartitions();  // asked for while a batch is planned, as Spark does
            return scan;
        }
        scala.collection.mutable.ListBuffer children = new scala.collection.mutable.ListBuffer();
        boolean isChanged = false;
        scala.collection.Iterator old = plan.children().iterator();
        while (old.hasNext()) {
            SparkPlan before = (SparkPlan) old.next();
            SparkPlan child = withScans(before, reads);
            isChanged = isChanged || child != before;
            children.addOne(child);
        }
        if (!isChanged) {
            return plan;
        }
        SparkPlan copy = (SparkPlan) plan.withNewChildrenInternal(children.toIndexedSeq());
        copy.copyTagsFrom(plan);
        return copy;
    }
}

/**
 * The last plans of one query's batches: what was planned, and its result. A query of several topics has a plan for each set of
 * those that have records.
 */
class PlanMemory {
    private static final int PLANS_MAX = 4;

    private final ArrayDeque plans = new ArrayDeque();  // of Object[]: a write's plan, and its result

    /** Tells whether the result of a plan can serve later batches: only its streams' offsets and its number change it. */
    static boolean holds(LogicalPlan plan) {
        if (
            !(plan instanceof WriteToMicroBatchDataSource || plan instanceof WriteToDataSourceV2)
            || plan.containsPattern(TreePattern.CURRENT_LIKE())
            || plan.containsPattern(TreePattern.PLAN_EXPRESSION())
        ) {
            return false;
        }
        boolean reads = false;
        scala.collection.Iterator leaves = plan.collectLeaves().iterator();
        while (leaves.hasNext()) {
            Object leaf = leaves.next();
            if (leaf instanceof StreamingDataSourceV2ScanRelation) {
                reads = true;
            } else if (!(leaf instanceof LocalRelation) && !(leaf instanceof OneRowRelation)) {
                return false;
            }
        }
        return reads;
    }

    /** The same write, of another query. */
    static LogicalPlan withQuery(LogicalPlan write, LogicalPlan query) {
        scala.collection.mutable.ListBuffer children = new scala.collection.mutable.ListBuffer();
        children.addOne(query);
        return (LogicalPlan) write.withNewChildren(children.toList());
    }

    /** What was kept for a plan that differs in offsets and number only; null where there is none. */
    synchronized Object resultFor(LogicalPlan plan) {
        Iterator known = plans.iterator();
        while (known.hasNext()) {
            Object[] pair = (Object[]) known.next();
            if (isSameWrite((LogicalPlan) pair[0], plan)) {
                if (pair != plans.peekFirst()) {
                    known.remove();
                    plans.addFirst(pair);
                }
                return pair[1];
            }
        }
        return null;
    }

    synchronized void add(LogicalPlan plan, Object result) {
        if (plans.size() >= PLANS_MAX) {
            plans.removeLast();
        }
        plans.addFirst(new Object[] {plan, result});
    }

    private static boolean isSameWrite(LogicalPlan left, LogicalPlan right) {
        if (left instanceof WriteToMicroBatchDataSource) {
            return isSameSink(left, right)
                && isSame(((WriteToMicroBatchDataSource) left).query(), ((WriteToMicroBatchDataSource) right).query());
        }
        WriteToDataSourceV2 one = (WriteToDataSourceV2) left;
        WriteToDataSourceV2 other = (WriteToDataSourceV2) right;
        return one.relation().equals(other.relation()) && isSame(one.query(), other.query());
    }

    static boolean isSameSink(LogicalPlan left, LogicalPlan right) {
        WriteToMicroBatchDataSource one = (WriteToMicroBatchDataSource) left;
        WriteToMicroBatchDataSource other = (WriteToMicroBatchDataSource) right;
        return one.relation().equals(other.relation())
            && one.queryId().equals(other.queryId())
            && one.writeOptions().equals(other.writeOptions())
            && one.outputMode().equals(other.outputMode());
    }

    /** The reads of a plan by their streams. */
    static Map reads(LogicalPlan plan) {
        IdentityHashMap reads = new IdentityHashMap();
        scala.collection.Iterator leaves = plan.collectLeaves().iterator();
        while (leaves.hasNext()) {
            Object leaf = leaves.next();
            if (leaf instanceof StreamingDataSourceV2ScanRelation) {
                reads.put(((StreamingDataSourceV2ScanRelation) leaf).stream(), leaf);
            }
        }
        return reads;
    }

    /** The same plan, with the offsets of other reads of its streams. */
    static LogicalPlan withReads(LogicalPlan plan, Map reads) {
        if (plan instanceof StreamingDataSourceV2ScanRelation) {
            StreamingDataSourceV2ScanRelation before = (StreamingDataSourceV2ScanRelation) plan;
            StreamingDataSourceV2ScanRelation now = (StreamingDataSourceV2ScanRelation) reads.get(before.stream());
            return before.copy(
                before.relation(), before.scan(), before.output(), before.stream(), now.startOffset(), now.endOffset()
            );
        }
        scala.collection.mutable.ListBuffer children = new scala.collection.mutable.ListBuffer();
        boolean isChanged = false;
        scala.collection.Iterator old = plan.children().iterator();
        while (old.hasNext()) {
            LogicalPlan before = (LogicalPlan) old.next();
            LogicalPlan child = withReads(before, reads);
            isChanged = isChanged || child != before;
            children.addOne(child);
        }
        return isChanged ? (LogicalPlan) plan.withNewChildren(children.toList()) : plan;
    }

    /** Tells whether two plans are equal except for the offsets that they read. */
    private static boolean isSame(LogicalPlan left, LogicalPlan right) {
        if (left == right) {
            return true;
        }
        if (left.getClass() != right.getClass()) {
            return false;
        }
        if (left instanceof StreamingDataSourceV2ScanRelation) {
            return isSameRead((StreamingDataSourceV2ScanRelation) left, (StreamingDataSourceV2ScanRelation) right);
        }
        if (left.productArity() != right.productArity() || !left.otherCopyArgs().equals(right.otherCopyArgs())) {
            return false;
        }
        for (int i = 0; i < left.productArity(); i++) {
            if (!isSameArgument(left, left.productElement(i), right, right.productElement(i))) {
                return false;
            }
        }
        scala.collection.Iterator children = left.children().iterator();
        scala.collection.Iterator others = right.children().iterator();
        while (children.hasNext() && others.hasNext()) {
            if (!isSame((LogicalPlan) children.next(), (LogicalPlan) others.next())) {
                return false;
            }
        }
        return !children.hasNext() && !others.hasNext();
    }

    private static boolean isSameRead(StreamingDataSourceV2ScanRelation left, StreamingDataSourceV2ScanRelation right) {
        return left.stream() == right.stream()
            && left.scan() == right.scan()
            && left.relation().equals(right.relation())
            && left.output().equals(right.output())
            && left.startOffset().isDefined() == right.startOffset().isDefined()
            && left.endOffset().isDefined() == right.endOffset().isDefined();
    }

    /** Compares what operators are made of. Their children are compared by themselves. */
    private static boolean isSameArgument(LogicalPlan left, Object argument, LogicalPlan right, Object other) {
        if (argument == other) {
            return true;
        }
        if (argument == null || other == null) {
            return false;
        }
        if (argument instanceof LogicalPlan) {
            return isChild(left, argument) && isChild(right, other);
        }
        if (argument instanceof scala.collection.Seq && other instanceof scala.collection.Seq) {
            scala.collection.Iterator parts = ((scala.collection.Seq) argument).iterator();
            scala.collection.Iterator others = ((scala.collection.Seq) other).iterator();
            while (parts.hasNext() && others.hasNext()) {
                if (!isSameArgument(left, parts.next(), right, others.next())) {
                    return false;
                }
            }
            return !parts.hasNext() && !others.hasNext();
        }
        return argument.equals(other);
    }

    private static boolean isChild(LogicalPlan plan, Object argument) {
        scala.collection.Iterator children = plan.children().iterator();
        while (children.hasNext()) {
            if (children.next() == argument) {
                return true;
            }
        }
        return false;
    }
}
