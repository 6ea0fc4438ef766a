package org.apache.spark.api.python;

import java.lang.reflect.Field;

import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerJobStart;

import scala.collection.mutable.HashMap;
import scala.collection.mutable.Queue;

/** Idle workers, of which the one that worked last is taken first. */
public class IdleWorkers extends Queue {
    public IdleWorkers(Queue before) {
        super(16);
        while (before.nonEmpty()) {
            addOne(before.removeHead(false));
        }
    }

    public Object dequeue() {
        return removeLast(false);
    }
}

/**
 * Has tasks run in the Python worker that worked last, where Spark takes the one that has been idle for longest. A worker that
 * has just worked has its memory in the processor's caches, and knows the sinks that it wrote to; others stay idle.
 *
 * Spark has a factory of workers for each kind of them, and makes it when a task needs the first one. So the factories are
 * looked at when a job starts.
 */
public class LastWorkerFirst extends SparkListener {
    private static Object served;  // the environment of the context that has a listener

    private final Object environment;
    private final Field factories;
    private final Field idle;

    private LastWorkerFirst(Object environment, Field factories, Field idle) {
        this.environment = environment;
        this.factories = factories;
        this.idle = idle;
    }

    /** Serves from now on. False where Spark keeps workers in another way than the one that is known here. */
    public static synchronized boolean serve(SparkContext context, Object environment) throws ReflectiveOperationException {
        Field factories = environment.getClass().getDeclaredField("pythonWorkers");
        Field idle = PythonWorkerFactory.class.getDeclaredField("idleWorkers");
        boolean isLimited = context.conf().contains("spark.python.factory.idleWorkerMaxPoolSize");
        if (isLimited || factories.getType() != HashMap.class || idle.getType() != Queue.class) {
            return false;  // Spark ends the first worker of a full queue, which must be the coldest
        }
        factories.setAccessible(true);
        idle.setAccessible(true);
        LastWorkerFirst listener = new LastWorkerFirst(environment, factories, idle);
        listener.order();
        if (served != environment) {
            served = environment;
            context.addSparkListener(listener);
        }
        return true;
    }

    public void onJobStart(SparkListenerJobStart start) {
        try {
            order();
        } catch (IllegalAccessException refused) {
            throw new IllegalStateException(refused);  // the fields are accessible, or nothing is served
        }
    }

    private void order() throws IllegalAccessException {
        synchronized (environment) {  // as Spark does, when it looks for a factory
            scala.collection.Iterator known = ((HashMap) factories.get(environment)).valuesIterator();
            while (known.hasNext()) {
                Object factory = known.next();
                synchronized (factory) {
                    Queue before = (Queue) idle.get(factory);
                    if (!(before instanceof IdleWorkers)) {
                        idle.set(factory, new IdleWorkers(before));
                    }
                }
            }
        }
    }
}
