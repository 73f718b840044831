/* Preloaded into a process: its wall clock is off by MONGOLOCK_CLOCK_SHIFT seconds, its monotonic clock is not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
    const char *seconds = getenv("MONGOLOCK_CLOCK_SHIFT");
    return seconds ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        now->tv_sec += shift();
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return result;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) {
        *result = now.tv_sec;
    }
    return now.tv_sec;
}

/* A wait until a time of the wall clock: the system counts by the right one. Other conditions count by the monotonic clock,
   whose times are far smaller. */
int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!wait) {
        /* On x86-64 there is an older one for another layout of the condition. */
        void *found = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
        wait = found ? found : dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    }
    struct timespec right = *until;
    if (right.tv_sec > 1000000000) {
        right.tv_sec -= shift();
    }
    return wait(condition, mutex, &right);
}
