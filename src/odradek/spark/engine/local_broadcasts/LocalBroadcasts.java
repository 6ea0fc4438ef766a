package org.apache.spark.broadcast;

import java.io.InvalidObjectException;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.lang.reflect.Field;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.spark.util.SerializableConfiguration;

/**
 * Hands what each job broadcasts to its tasks as it is, where tasks run in the JVM of the driver. Spark writes it as if it went
 * to other machines: serialized, compressed, as blocks that the block manager keeps, reports and removes. No task reads them
 * there, because the driver's block manager has the value itself.
 *
 * These are the code of a stage (bytes), and Hadoop's settings, once for each operator with state. All else is left to
 * Spark: the rows of a join are large, and its memory manager may have to put them on disk.
 */
public class LocalBroadcasts extends TorrentBroadcastFactory {
    private static final AtomicLong COUNT = new AtomicLong();

    private final ConcurrentHashMap ids = new ConcurrentHashMap();

    /** The number of values that were broadcast in this JVM without Spark's blocks. */
    public static long count() {
        return COUNT.get();
    }

    /** Serves the broadcasts from now on. False where Spark has another factory than the one that is known here. */
    public static boolean serve(BroadcastManager manager) throws ReflectiveOperationException {
        Field factory = BroadcastManager.class.getDeclaredField("broadcastFactory");
        factory.setAccessible(true);
        Object current = factory.get(manager);
        if (current instanceof LocalBroadcasts) {
            return true;
        }
        if (current == null || current.getClass() != TorrentBroadcastFactory.class) {
            return false;
        }
        factory.set(manager, new LocalBroadcasts());
        return true;
    }

    public Broadcast newBroadcast(
        Object value, boolean isLocal, long id, boolean serializedOnly, scala.reflect.ClassTag type
    ) {
        if (!isLocal || serializedOnly || !(value instanceof byte[] || value instanceof SerializableConfiguration)) {
            return super.newBroadcast(value, isLocal, id, serializedOnly, type);
        }
        COUNT.incrementAndGet();
        ids.put(Long.valueOf(id), Boolean.TRUE);
        return new LocalBroadcast(id, value, type);
    }

    public void unbroadcast(long id, boolean removeFromDriver, boolean blocking) {
        if (ids.remove(Long.valueOf(id)) == null) {
            super.unbroadcast(id, removeFromDriver, blocking);
        }
    }
}

/**
 * A value that the tasks of this JVM find by a number. A stage holds its broadcasts while its tasks run, so the map holds none:
 * a value is garbage when its stage is.
 */
class LocalBroadcast extends Broadcast {
    private static final AtomicLong NUMBERS = new AtomicLong();
    private static final ConcurrentHashMap ALL = new ConcurrentHashMap();  // of NumberedReference, by number
    private static final ReferenceQueue ENDED = new ReferenceQueue();

    private final long number;
    private transient volatile Object content;

    LocalBroadcast(long id, Object content, scala.reflect.ClassTag type) {
        super(id, type);
        this.content = content;
        this.number = NUMBERS.incrementAndGet();  // ids begin again with each SparkContext
        for (Object ended = ENDED.poll(); ended != null; ended = ENDED.poll()) {
            ALL.remove(((NumberedReference) ended).number);
        }
        NumberedReference reference = new NumberedReference(this, Long.valueOf(number), ENDED);
        ALL.put(reference.number, reference);
    }

    public Object getValue() {
        return content;
    }

    public void doUnpersist(boolean blocking) {
        // the tasks have no copies
    }

    public void doDestroy(boolean blocking) {
        ALL.remove(Long.valueOf(number));
        content = null;
    }

    /** Java calls it for a copy that a task has read. Janino makes static methods of private ones. */
    protected Object readResolve() throws InvalidObjectException {
        NumberedReference reference = (NumberedReference) ALL.get(Long.valueOf(number));
        Object original = reference == null ? null : reference.get();
        if (original == null) {
            throw new InvalidObjectException("broadcast " + id() + " is not of this process, or was destroyed");
        }
        return original;
    }
}

class NumberedReference extends WeakReference {
    final Long number;

    NumberedReference(Object referent, Long number, ReferenceQueue queue) {
        super(referent, queue);
        this.number = number;
    }
}
