/* Preloaded by a test: threads that are not librdkafka's own pause whenever they have released a lock of its state, so
 * that librdkafka's threads come in between where they could. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

int pthread_rwlock_unlock(pthread_rwlock_t *lock) {
    static int (*unlock)(pthread_rwlock_t *);
    char name[16] = "";
    int result;

    if (!unlock)
        unlock = (int (*)(pthread_rwlock_t *))dlsym(RTLD_NEXT, "pthread_rwlock_unlock");
    result = unlock(lock);
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (strncmp(name, "rdk", 3))
        usleep(2000);
    return result;
}
