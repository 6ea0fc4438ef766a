package org.apache.spark.sql.execution;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.execution.python.MapInArrowExec;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Packs and unpacks the rows of small batches in the JVM. Operators in Python get the rows of a task as one, in Arrow's stream
 * format, and return theirs as one. Functions in Python pack and unpack them, which is faster for many rows. For a few, the way to a
 * worker and back costs more than the rows.
 */
public class RowsInJvm {
    static final String TASK = "__task";  // the columns of `streams/translation/packing.py`, and the functions' names
    static final String ROWS = "__rows";
    private static final String PACK = "RowPacker";
    private static final String UNPACK = "RowUnpacker";
    private static final AtomicLong PLANNED = new AtomicLong();

    /** The number of functions in Python, in plans of this JVM, that the JVM took the place of. */
    public static long plannedCount() {
        return PLANNED.get();
    }

    /** The same operators, whose rows are packed and unpacked in the JVM. */
    static SparkPlan in(SparkPlan plan) {
        scala.collection.mutable.ListBuffer children = new scala.collection.mutable.ListBuffer();
        boolean isChanged = false;
        scala.collection.Iterator old = plan.children().iterator();
        while (old.hasNext()) {
            SparkPlan before = (SparkPlan) old.next();
            SparkPlan child = in(before);
            isChanged = isChanged || child != before;
            children.addOne(child);
        }
        SparkPlan result = plan;
        if (isChanged) {
            result = (SparkPlan) plan.withNewChildrenInternal(children.toIndexedSeq());
            result.copyTagsFrom(plan);
        }
        return result instanceof MapInArrowExec ? ofFunction((MapInArrowExec) result) : result;
    }

    private static SparkPlan ofFunction(MapInArrowExec plan) {
        if (plan.isBarrier() || plan.profile().isDefined() || !(plan.func() instanceof PythonUDF)) {
            return plan;
        }
        String name = ((PythonUDF) plan.func()).name();
        SparkPlan child = (SparkPlan) plan.child();
        MapInArrowExec own = null;
        if (PACK.equals(name) && isPacked(plan.schema(), true) && indexOf(child.schema(), TASK) >= 0) {
            own = new RowsPackedExec(plan.func(), plan.output(), child, false, plan.profile());
        } else if (UNPACK.equals(name) && isPacked(child.schema(), false) && isKnown(plan.schema())) {
            own = new RowsUnpackedExec(plan.func(), plan.output(), child, false, plan.profile());
        }
        if (own == null) {
            return plan;
        }
        own.copyTagsFrom(plan);
        PLANNED.incrementAndGet();
        return own;
    }

    private static boolean isPacked(StructType schema, boolean withTask) {
        StructField[] fields = schema.fields();
        int last = fields.length - 1;
        return last == (withTask ? 1 : 0)
            && (!withTask || fields[0].name().equals(TASK) && fields[0].dataType().equals(DataTypes.IntegerType))
            && fields[last].name().equals(ROWS)
            && fields[last].dataType().equals(DataTypes.BinaryType);
    }

    static int indexOf(StructType schema, String name) {
        StructField[] fields = schema.fields();
        for (int i = 0; i < fields.length; i++) {
            if (fields[i].name().equals(name)) {
                return i;
            }
        }
        return -1;
    }

    /** Tells whether the JVM reads the values of a type from Arrow as they are. Others may have forms of their own there. */
    private static boolean isKnown(DataType type) {
        if (type instanceof StructType) {
            StructField[] fields = ((StructType) type).fields();
            for (int i = 0; i < fields.length; i++) {
                if (!isKnown(fields[i].dataType())) {
                    return false;
                }
            }
            return true;
        }
        if (type instanceof ArrayType) {
            return isKnown(((ArrayType) type).elementType());
        }
        if (type instanceof MapType) {
            return isKnown(((MapType) type).keyType()) && isKnown(((MapType) type).valueType());
        }
        return type instanceof DecimalType
            || type.equals(DataTypes.BooleanType)
            || type.equals(DataTypes.ByteType)
            || type.equals(DataTypes.ShortType)
            || type.equals(DataTypes.IntegerType)
            || type.equals(DataTypes.LongType)
            || type.equals(DataTypes.FloatType)
            || type.equals(DataTypes.DoubleType)
            || type.equals(DataTypes.StringType)
            || type.equals(DataTypes.BinaryType)
            || type.equals(DataTypes.DateType)
            || type.equals(DataTypes.TimestampType)
            || type.equals(DataTypes.TimestampNTZType);
    }

    static RDD mapped(SparkPlan child, scala.Function1 function) {
        return child.execute().mapPartitionsInternal(
            function, false, scala.reflect.ClassTag$.MODULE$.apply(InternalRow.class)
        );
    }
}

/** The operator that packs rows, in place of the function in Python. Spark copies operators by their public constructor. */
public class RowsPackedExec extends MapInArrowExec {
    public RowsPackedExec(
        Expression function, scala.collection.immutable.Seq output, SparkPlan child, boolean isBarrier, scala.Option profile
    ) {
        super(function, output, child, isBarrier, profile);
    }

    public RDD doExecute() {
        SparkPlan input = (SparkPlan) child();
        return RowsInJvm.mapped(
            input, new PackRows(input.schema(), conf().sessionLocalTimeZone(), conf().arrowUseLargeVarTypes())
        );
    }

    public MapInArrowExec withNewChildInternal(SparkPlan child) {
        return new RowsPackedExec(func(), output(), child, isBarrier(), profile());
    }
}

/** The operator that unpacks rows, in place of the function in Python. */
public class RowsUnpackedExec extends MapInArrowExec {
    public RowsUnpackedExec(
        Expression function, scala.collection.immutable.Seq output, SparkPlan child, boolean isBarrier, scala.Option profile
    ) {
        super(function, output, child, isBarrier, profile);
    }

    public RDD doExecute() {
        return RowsInJvm.mapped((SparkPlan) child(), new UnpackRows(schema()));
    }

    public MapInArrowExec withNewChildInternal(SparkPlan child) {
        return new RowsUnpackedExec(func(), output(), child, isBarrier(), profile());
    }
}

class PackRows extends scala.runtime.AbstractFunction1 implements java.io.Serializable {
    private final StructType schema;
    private final String zone;
    private final boolean largeTypes;

    PackRows(StructType schema, String zone, boolean largeTypes) {
        this.schema = schema;
        this.zone = zone;
        this.largeTypes = largeTypes;
    }

    public Object apply(Object rows) {
        return new PackedRowIterator((scala.collection.Iterator) rows, schema, zone, largeTypes);
    }
}

class UnpackRows extends scala.runtime.AbstractFunction1 implements java.io.Serializable {
    private final StructType schema;

    UnpackRows(StructType schema) {
        this.schema = schema;
    }

    public Object apply(Object rows) {
        return new UnpackedRowIterator((scala.collection.Iterator) rows, schema);
    }
}

/** Rows (task, packed rows): one for each task and some megabytes. */
class PackedRowIterator extends scala.collection.AbstractIterator {
    private static final long BYTES_MAX = 8L << 20;

    private final scala.collection.Iterator rows;
    private final StructType schema;
    private final String zone;
    private final boolean largeTypes;
    private final int task;
    private final UnsafeProjection input;
    private final UnsafeProjection output;
    private Iterator waiting = Collections.emptyIterator();  // of Map.Entry: a task, and its rows

    PackedRowIterator(scala.collection.Iterator rows, StructType schema, String zone, boolean largeTypes) {
        this.rows = rows;
        this.schema = schema;
        this.zone = zone;
        this.largeTypes = largeTypes;
        this.task = RowsInJvm.indexOf(schema, RowsInJvm.TASK);
        this.input = UnsafeProjection.create(schema);
        this.output = UnsafeProjection.create(new DataType[] {DataTypes.IntegerType, DataTypes.BinaryType});
    }

    public boolean hasNext() {
        return waiting.hasNext() || rows.hasNext();
    }

    public Object next() {
        if (!waiting.hasNext()) {
            waiting = byTask().entrySet().iterator();
        }
        Map.Entry entry = (Map.Entry) waiting.next();
        return output.apply(new GenericInternalRow(new Object[] {entry.getKey(), packed((List) entry.getValue())}));
    }

    private Map byTask() {
        Map byTask = new LinkedHashMap();
        long size = 0;
        while (rows.hasNext() && size < BYTES_MAX) {
            Object row = rows.next();
            UnsafeRow copy = (row instanceof UnsafeRow ? (UnsafeRow) row : input.apply((InternalRow) row)).copy();
            Integer name = Integer.valueOf(copy.getInt(task));
            List ofTask = (List) byTask.get(name);
            if (ofTask == null) {
                ofTask = new ArrayList();
                byTask.put(name, ofTask);
            }
            ofTask.add(copy);
            size += copy.getSizeInBytes();
        }
        return byTask;
    }

    private byte[] packed(List ofTask) {
        scala.collection.Iterator each = scala.jdk.javaapi.CollectionConverters.asScala(ofTask.iterator());
        scala.collection.Iterator streams = ArrowConverters$.MODULE$.toBatchWithSchemaIterator(
            each, schema, Long.MAX_VALUE, Long.MAX_VALUE, zone, true, largeTypes
        );
        byte[] stream = (byte[]) streams.next();
        if (streams.hasNext()) {  // which frees its memory
            throw new IllegalStateException("rows that are packed together are one stream");
        }
        return stream;
    }
}

/** The rows that were packed. */
class UnpackedRowIterator extends scala.collection.AbstractIterator {
    private final scala.collection.Iterator packed;
    private final StructType schema;
    private final UnsafeProjection output;
    private scala.collection.Iterator rows;

    UnpackedRowIterator(scala.collection.Iterator packed, StructType schema) {
        this.packed = packed;
        this.schema = schema;
        this.output = UnsafeProjection.create(schema);
    }

    public boolean hasNext() {
        while (rows == null || !rows.hasNext()) {
            if (rows != null) {
                close();
            }
            if (!packed.hasNext()) {
                return false;
            }
            open(((InternalRow) packed.next()).getBinary(0));
        }
        return true;
    }

    public Object next() {
        if (!hasNext()) {
            throw new java.util.NoSuchElementException();
        }
        return output.apply((InternalRow) rows.next());
    }

    private void open(byte[] stream) {
        scala.Tuple2 read = ArrowConverters$.MODULE$.fromIPCStreamWithIterator(stream, TaskContext.get());
        rows = (scala.collection.Iterator) read._1();
        if (!org.apache.spark.sql.types.DataType$.MODULE$.equalsIgnoreNullability((DataType) read._2(), schema)) {
            close();
            throw new IllegalStateException("packed rows are " + read._2() + ", and were to be " + schema);
        }
    }

    private void close() {
        try {
            ((AutoCloseable) rows).close();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        } finally {
            rows = null;
        }
    }
}
