/* Write down every change that a process makes to the files below one folder, and every sync, in order.
 *
 * Loaded with LD_PRELOAD. From the journal, `power.py` rebuilds what the disk would hold if the power had failed: what
 * was synced, and any part of what was not. Records, little-endian:
 *
 *     u8 kind | u32 path_bytes | u64 offset | u64 data_bytes | path | data
 *
 * kind: w write, t truncate (offset is the new size), s sync of a file or folder, r rename (data is the new path),
 * u unlink. A change is written down after it was made, a sync after it returned.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static int journal = -1;

#define REAL(name, type) ((type)dlsym(RTLD_NEXT, name))

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("DISK_JOURNAL_FILE");
    root = getenv("DISK_JOURNAL_ROOT");
    if (path != NULL && root != NULL)
        journal = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int below(const char *path) {
    size_t size = root == NULL ? 0 : strlen(root);
    return journal >= 0 && strncmp(path, root, size) == 0 && (path[size] == 0 || path[size] == '/');
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size <= 0)
        return 0;
    path[size] = 0;
    return below(path);
}

static void put(const void *data, size_t size) {
    const char *next = data;
    while (size > 0) {
        ssize_t done = syscall(SYS_write, journal, next, size);
        if (done <= 0)
            abort(); /* a journal with a hole would prove nothing */
        next += done;
        size -= (size_t)done;
    }
}

static void note(char kind, const char *path, uint64_t offset, const void *data, uint64_t size) {
    char head[21];
    uint32_t path_bytes = (uint32_t)strlen(path);
    head[0] = kind;
    memcpy(head + 1, &path_bytes, 4);
    memcpy(head + 5, &offset, 8);
    memcpy(head + 13, &size, 8);
    pthread_mutex_lock(&lock);
    put(head, sizeof head);
    put(path, path_bytes);
    put(data, size);
    pthread_mutex_unlock(&lock);
}

static void note_vector(const char *path, off_t offset, const struct iovec *pieces, int count, ssize_t left) {
    for (int place = 0; place < count && left > 0; place++) {
        size_t size = pieces[place].iov_len < (size_t)left ? pieces[place].iov_len : (size_t)left;
        note('w', path, (uint64_t)offset, pieces[place].iov_base, size);
        offset += (off_t)size;
        left -= (ssize_t)size;
    }
}

ssize_t write(int fd, const void *data, size_t size) {
    char path[PATH_MAX];
    ssize_t done = REAL("write", ssize_t(*)(int, const void *, size_t))(fd, data, size);
    if (done > 0 && journal >= 0 && fd != journal && path_of(fd, path))
        note('w', path, (uint64_t)(lseek(fd, 0, SEEK_CUR) - done), data, (uint64_t)done);
    return done;
}

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    char path[PATH_MAX];
    ssize_t done = REAL("writev", ssize_t(*)(int, const struct iovec *, int))(fd, pieces, count);
    if (done > 0 && journal >= 0 && path_of(fd, path))
        note_vector(path, lseek(fd, 0, SEEK_CUR) - done, pieces, count, done);
    return done;
}

static ssize_t pwrite_at(const char *name, int fd, const void *data, size_t size, off_t offset) {
    char path[PATH_MAX];
    ssize_t done = REAL(name, ssize_t(*)(int, const void *, size_t, off_t))(fd, data, size, offset);
    if (done > 0 && path_of(fd, path))
        note('w', path, (uint64_t)offset, data, (uint64_t)done);
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return pwrite_at("pwrite", fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) {
    return pwrite_at("pwrite64", fd, data, size, offset);
}

static ssize_t pwritev_at(const char *name, int fd, const struct iovec *pieces, int count, off_t offset) {
    char path[PATH_MAX];
    ssize_t done = REAL(name, ssize_t(*)(int, const struct iovec *, int, off_t))(fd, pieces, count, offset);
    if (done > 0 && path_of(fd, path))
        note_vector(path, offset, pieces, count, done);
    return done;
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset) {
    return pwritev_at("pwritev", fd, pieces, count, offset);
}

ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off_t offset) {
    return pwritev_at("pwritev64", fd, pieces, count, offset);
}

static ssize_t pwritev2_at(const char *name, int fd, const struct iovec *pieces, int count, off_t offset, int flags) {
    char path[PATH_MAX];
    ssize_t done = REAL(name, ssize_t(*)(int, const struct iovec *, int, off_t, int))(fd, pieces, count, offset, flags);
    if (done > 0 && path_of(fd, path))
        note_vector(path, offset, pieces, count, done);
    return done;
}

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t offset, int flags) {
    return pwritev2_at("pwritev2", fd, pieces, count, offset, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off_t offset, int flags) {
    return pwritev2_at("pwritev64v2", fd, pieces, count, offset, flags);
}

static int truncate_at(const char *name, int fd, off_t size) {
    char path[PATH_MAX];
    int done = REAL(name, int (*)(int, off_t))(fd, size);
    if (done == 0 && path_of(fd, path))
        note('t', path, (uint64_t)size, "", 0);
    return done;
}

int ftruncate(int fd, off_t size) { return truncate_at("ftruncate", fd, size); }

int ftruncate64(int fd, off_t size) { return truncate_at("ftruncate64", fd, size); }

static int allocate_at(const char *name, int fd, off_t offset, off_t size) {
    char path[PATH_MAX];
    int done = REAL(name, int (*)(int, off_t, off_t))(fd, offset, size);
    if (done == 0 && path_of(fd, path)) /* a write of nothing at its end makes a file longer, and never shorter */
        note('w', path, (uint64_t)(offset + size), "", 0);
    return done;
}

int posix_fallocate(int fd, off_t offset, off_t size) { return allocate_at("posix_fallocate", fd, offset, size); }

int posix_fallocate64(int fd, off_t offset, off_t size) { return allocate_at("posix_fallocate64", fd, offset, size); }

static int sync_at(const char *name, int fd) {
    char path[PATH_MAX];
    int done = REAL(name, int (*)(int))(fd);
    if (done == 0 && path_of(fd, path))
        note('s', path, 0, "", 0);
    return done;
}

int fsync(int fd) { return sync_at("fsync", fd); }

int fdatasync(int fd) { return sync_at("fdatasync", fd); }

int rename(const char *from, const char *into) {
    int done = REAL("rename", int (*)(const char *, const char *))(from, into);
    if (done == 0 && below(from))
        note('r', from, 0, into, strlen(into));
    return done;
}

int unlink(const char *path) {
    int done = REAL("unlink", int (*)(const char *))(path);
    if (done == 0 && below(path))
        note('u', path, 0, "", 0);
    return done;
}
