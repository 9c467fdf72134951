/* Preloaded by a campaign: a machine whose clock is SHIFTED_CLOCK seconds ahead, or behind if that is negative. The times
 * of its files are those of its clock, too. What counts seconds since the start is right. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>

static time_t shift(void) {
    static time_t seconds;
    static int known;

    if (!known) {
        const char *text = getenv("SHIFTED_CLOCK");
        seconds = text ? atol(text) : 0;
        known = 1;
    }
    return seconds;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int result = real(clock, now);

    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += shift();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    REAL(gettimeofday);
    int result = real(now, zone);

    if (!result)
        now->tv_sec += shift();
    return result;
}

time_t time(time_t *out) {
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

static int shifted(int result, struct stat *found) {
    if (!result) {
        found->st_atim.tv_sec += shift();
        found->st_mtim.tv_sec += shift();
        found->st_ctim.tv_sec += shift();
    }
    return result;
}

#define STAT(name, of, call) \
    int name of { \
        REAL(name); \
        return shifted(real call, (struct stat *)found); \
    }
STAT(stat, (const char *restrict path, struct stat *restrict found), (path, found))
STAT(stat64, (const char *restrict path, struct stat64 *restrict found), (path, found))
STAT(lstat, (const char *restrict path, struct stat *restrict found), (path, found))
STAT(lstat64, (const char *restrict path, struct stat64 *restrict found), (path, found))
STAT(fstat, (int file, struct stat *found), (file, found))
STAT(fstat64, (int file, struct stat64 *found), (file, found))
STAT(fstatat, (int at, const char *restrict path, struct stat *restrict found, int flags), (at, path, found, flags))
STAT(fstatat64, (int at, const char *restrict path, struct stat64 *restrict found, int flags), (at, path, found, flags))

static const struct timespec *unshifted(const struct timespec given[2], struct timespec times[2]) {
    for (int one = 0; given && one < 2; one++) {
        times[one] = given[one];
        if (given[one].tv_nsec != UTIME_NOW && given[one].tv_nsec != UTIME_OMIT)
            times[one].tv_sec -= shift();
    }
    return given ? times : NULL;
}

int utimensat(int at, const char *path, const struct timespec given[2], int flags) {
    struct timespec times[2];
    REAL(utimensat);
    return real(at, path, unshifted(given, times), flags);
}

int futimens(int file, const struct timespec given[2]) {
    struct timespec times[2];
    REAL(futimens);
    return real(file, unshifted(given, times));
}

/* The kernel ends these waits by its own clock. A deadline before 2001 is one of seconds since the start. */
static struct timespec deadline(const struct timespec *until) {
    struct timespec found = *until;

    if (found.tv_sec > 1000000000)
        found.tv_sec -= shift();
    return found;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict lock,
                           const struct timespec *restrict until) {
    struct timespec at = deadline(until);
    REAL(pthread_cond_timedwait);
    return real(condition, lock, &at);
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict lock, const struct timespec *restrict until) {
    struct timespec at = deadline(until);
    REAL(cnd_timedwait);
    return real(condition, lock, &at);
}
