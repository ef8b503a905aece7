/* Makes calls that write fail, for files below one folder.
 *
 * RATH_FAULT_DIR   the folder
 * RATH_FAULT_AT    which call fails, counted from 1; 0 for none
 * RATH_FAULT_KIND  eio | enospc | short | fsync | full
 * RATH_FAULT_ON    set if every later call fails as well
 * RATH_FAULT_BYTES for `full`: how many bytes there is room for
 * RATH_FAULT_LOG   a file that gets a line when something fails, which says in what
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NONE, EIO_, ENOSPC_, SHORT, FSYNC, FULL };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int kind = -1, on;
static long at, count;
static long long room, used;
static const char *folder, *log_path;
static char path[4096];

static void setup(void) {
    if (kind >= 0) return;
    const char *name = getenv("RATH_FAULT_KIND");
    folder = getenv("RATH_FAULT_DIR");
    log_path = getenv("RATH_FAULT_LOG");
    at = getenv("RATH_FAULT_AT") ? atol(getenv("RATH_FAULT_AT")) : 0;
    on = getenv("RATH_FAULT_ON") != NULL;
    room = getenv("RATH_FAULT_BYTES") ? atoll(getenv("RATH_FAULT_BYTES")) : 0;
    kind = NONE;
    if (!folder || !name) return;
    if (!strcmp(name, "eio")) kind = EIO_;
    if (!strcmp(name, "enospc")) kind = ENOSPC_;
    if (!strcmp(name, "short")) kind = SHORT;
    if (!strcmp(name, "fsync")) kind = FSYNC;
    if (!strcmp(name, "full")) kind = FULL;
}

static int below(const char *path) {
    size_t length = strlen(folder);
    return !strncmp(path, folder, length) && (path[length] == '/' || path[length] == 0);
}

static int ours(int fd) {
    if (kind == NONE) return 0;
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return below(path);
}

static void told(void) {
    if (!log_path) return;
    int fd = syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_APPEND | O_CREAT, 0644);
    if (fd >= 0) {
        const char *folder_or_file = strcmp(path, folder) ? "fault in a file\n" : "fault in the folder\n";
        syscall(SYS_write, fd, folder_or_file, strlen(folder_or_file));
        syscall(SYS_close, fd);
    }
}

/* What is to be done about a call that writes `bytes`, or syncs: how much of it is done, or less than 0 for all. */
static long long verdict(int fd, long long bytes, int syncs, int *error) {
    pthread_mutex_lock(&lock);
    setup();
    long long done = -1;
    if (ours(fd)) {
        if (kind == FULL) {
            if (!syncs && used + bytes > room) {
                done = room > used ? room - used : 0;
                *error = ENOSPC;
                used += done;
                told();
            } else {
                used += bytes;
            }
        } else if (kind != FSYNC || syncs) {
            count++;
            if (at && (count == at || (on && count > at))) {
                *error = kind == EIO_ || kind == FSYNC ? EIO : ENOSPC;
                done = kind == SHORT && count == at ? bytes / 2 : 0;
                told();
            }
        }
    }
    pthread_mutex_unlock(&lock);
    return done;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t bytes) {
    REAL(write);
    int error = 0;
    long long done = verdict(fd, bytes, 0, &error);
    if (done < 0) return real(fd, data, bytes);
    if (done > 0) return real(fd, data, done);
    errno = error;
    return -1;
}

ssize_t writev(int fd, const struct iovec *list, int length) {
    REAL(writev);
    int error = 0;
    long long bytes = 0;
    for (int nth = 0; nth < length; nth++) bytes += list[nth].iov_len;
    if (verdict(fd, bytes, 0, &error) < 0) return real(fd, list, length);
    errno = error;
    return -1;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t place) {
    REAL(pwrite);
    int error = 0;
    long long done = verdict(fd, bytes, 0, &error);
    if (done < 0) return real(fd, data, bytes, place);
    if (done > 0) return real(fd, data, done, place);
    errno = error;
    return -1;
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t place) {
    REAL(pwrite64);
    int error = 0;
    long long done = verdict(fd, bytes, 0, &error);
    if (done < 0) return real(fd, data, bytes, place);
    if (done > 0) return real(fd, data, done, place);
    errno = error;
    return -1;
}

#define PLAIN(name, parameters, arguments, syncs) \
    int name parameters { \
        REAL(name); \
        int error = 0; \
        if (verdict(fd, 0, syncs, &error) < 0) return real arguments; \
        errno = error; \
        return -1; \
    }

PLAIN(fsync, (int fd), (fd), 1)
PLAIN(fdatasync, (int fd), (fd), 1)
PLAIN(ftruncate, (int fd, off_t length), (fd, length), 0)
PLAIN(ftruncate64, (int fd, off64_t length), (fd, length), 0)

static int refused(const char *name, int flags) {
    if ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_CREAT)) return 0;
    pthread_mutex_lock(&lock);
    setup();
    int error = 0;
    if (kind != NONE && kind != FSYNC && kind != FULL && name[0] == '/' && below(name)) {
        count++;
        path[0] = 0;
        if (at && (count == at || (on && count > at))) {
            error = kind == EIO_ ? EIO : ENOSPC;
            told();
        }
    }
    pthread_mutex_unlock(&lock);
    return error;
}

#define OPEN(name) \
    int name(const char *file, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        int error = refused(file, flags); \
        if (!error) return real(file, flags, mode); \
        errno = error; \
        return -1; \
    }

OPEN(open)
OPEN(open64)
