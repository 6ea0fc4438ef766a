# The state that the threads of `_sync_threads.py` share with the event loop, typed.

cimport cython

from odradek.runtime.system_calls cimport pid_t, pthread_cond_t, pthread_mutex_t, pthread_t

cdef struct Work:
    int descriptors[16]
    int errors[16]  # 0, or an errno
    long long nanoseconds[16]
    int count
    bint is_over
    void* group  # the `DescriptorGroup` that holds this, which `SyncThreads` keeps alive until it has given it back
    Work* next

cdef struct Queue:
    Work* first
    Work* last

cdef struct Pool:
    pthread_mutex_t mutex  # guards everything below, and `Work.is_over`
    pthread_cond_t has_work
    pthread_cond_t has_ended
    Queue waiting
    Queue ended
    int waiting_count
    int idle_count  # threads that wait for work
    int waiter_count  # threads of Python that wait for the end of some work
    bint is_closing
    bint is_signalled  # the event descriptor was written, or is about to be, since it was read
    int event_descriptor

@cython.no_gc_clear
cdef class DescriptorGroup:
    cdef Work work
    cdef SyncThreads threads  # which began it
    cdef list descriptors  # objects that keep them open
    cdef object done

# Not known to the garbage collector, which would take the owner, its groups and nothing else for a cycle that no one can reach,
# and free the groups that its threads still work on. So what is under way keeps its owner alive until `ended` or `close`.
@cython.no_gc
cdef class SyncThreads:
    cdef Pool pool
    cdef pthread_t threads[16]
    cdef int thread_count
    cdef int threads_max
    cdef pid_t process
    cdef bint is_closed
    cdef set under_way

    cdef bint start(self) noexcept
    cdef void end(self) noexcept
