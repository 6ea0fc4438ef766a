# What `_sync_threads.py` needs of Linux: threads that know nothing of Python, fdatasync(2), sync_file_range(2), an eventfd(2).

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_create(pthread_t* thread, void* attributes, void* (*run)(void*) noexcept nogil, void* argument)
    int pthread_join(pthread_t thread, void** result)
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_cond_init(pthread_cond_t* condition, void* attributes)
    int pthread_cond_destroy(pthread_cond_t* condition)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex)
    int pthread_cond_signal(pthread_cond_t* condition)
    int pthread_cond_broadcast(pthread_cond_t* condition)

cdef extern from "signal.h" nogil:
    ctypedef struct sigset_t:
        pass
    int SIG_SETMASK
    int sigfillset(sigset_t* signals)
    int pthread_sigmask(int how, const sigset_t* new, sigset_t* old)

cdef extern from "time.h" nogil:
    ctypedef int clockid_t
    ctypedef long time_t
    cdef struct timespec:
        time_t tv_sec
        long tv_nsec
    clockid_t CLOCK_MONOTONIC
    int clock_gettime(clockid_t clock, timespec* now)

cdef extern from "unistd.h" nogil:
    ctypedef int pid_t
    int fdatasync(int descriptor)
    int close(int descriptor)
    ssize_t read(int descriptor, void* buffer, size_t size)
    ssize_t write(int descriptor, const void* buffer, size_t size)
    pid_t getpid()

cdef extern from "fcntl.h" nogil:
    unsigned int SYNC_FILE_RANGE_WRITE
    int sync_file_range(int descriptor, long long offset, long long size, unsigned int flags)

cdef extern from "sys/eventfd.h" nogil:
    int EFD_CLOEXEC
    int EFD_NONBLOCK
    int eventfd(unsigned int count, int flags)
