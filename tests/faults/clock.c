/* Preloaded into a broker: its wall clock (CLOCK_REALTIME alone) is ahead by what a file says, in nanoseconds, now. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead_ns;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("ODRADEK_FAULTS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED)
        ahead_ns = page;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = real_clock_gettime(id, now);
    if (!failed && id == CLOCK_REALTIME && ahead_ns) {
        int64_t ns = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + *ahead_ns;
        now->tv_sec = ns / 1000000000;
        now->tv_nsec = ns % 1000000000;
    }
    return failed;
}
