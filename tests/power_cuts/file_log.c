/* Logs what a process does with the files under one folder, in order, with the bytes that it writes. Preloaded.

   FILE_LOG_FOLDER is the folder, FILE_LOG_FILE the log, and FILE_LOG_MARKS a file outside the folder: what is written to it is
   logged as a mark, so its place among the writes is exact. All processes hold one lock while they do a step and log it, so the
   log has the order of the steps. A record is the header below, a path, a second path, and data. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, TRUNCATE, SYNC, UNLINK, RENAME, MAKE_FOLDER, REMOVE_FOLDER, MARK, UNKNOWN };

struct record { int32_t step, pid; int64_t file, offset; int32_t path_bytes, other_bytes; int64_t data_bytes; };

static const char *folder, *marks, *log_path;
static size_t folder_bytes;
static int log_file = -1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name, type, ...) static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

/* A copy: Redis writes its title over the environment. */
static const char *setting(const char *name) { const char *value = getenv(name); return value ? strdup(value) : 0; }

static void open_log(void) { /* also in a child of fork: a lock belongs to an opened file, not to a process */
    if (log_file >= 0) close(log_file);
    log_file = folder ? open(log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
}

__attribute__((constructor)) static void start(void) {
    folder = setting("FILE_LOG_FOLDER");
    marks = setting("FILE_LOG_MARKS");
    log_path = setting("FILE_LOG_FILE");
    folder_bytes = folder ? strlen(folder) : 0;
    open_log();
    pthread_atfork(0, 0, open_log);
}

static void lock(void) { pthread_mutex_lock(&mutex); flock(log_file, LOCK_EX); }
static void unlock(void) { int kept = errno; flock(log_file, LOCK_UN); pthread_mutex_unlock(&mutex); errno = kept; }

static int is_inside(const char *path) {
    return folder && !strncmp(path, folder, folder_bytes) && (path[folder_bytes] == '/' || !path[folder_bytes]);
}

/* The absolute path of a name; not normalized beyond its folder's links. */
static int inside_of(int at, const char *name, char *path) {
    if (!folder) return 0;
    char base[PATH_MAX], link[64];
    if (name[0] == '/') return snprintf(path, PATH_MAX, "%s", name), is_inside(path);
    if (at == AT_FDCWD) { if (!getcwd(base, sizeof base)) return 0; }
    else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t n = readlink(link, base, sizeof base - 1);
        if (n < 0) return 0;
        base[n] = 0;
    }
    if (!is_inside(base) && !is_inside(name)) { snprintf(path, PATH_MAX, "%.2000s/%.2000s", base, name); return is_inside(path); }
    snprintf(path, PATH_MAX, "%.2000s/%.2000s", base, name);
    return is_inside(path);
}

enum { OUTSIDE, INSIDE, MARKS };

static int place_of(int fd, char *path) {
    if (!folder || fd == log_file) return OUTSIDE;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int kept = errno;
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    errno = kept;
    if (n < 0) return OUTSIDE;
    path[n] = 0;
    if (marks && !strcmp(path, marks)) return MARKS;
    return is_inside(path) ? INSIDE : OUTSIDE;
}

static int64_t inode_of(int fd) { struct stat s; return fstat(fd, &s) ? -1 : (int64_t)s.st_ino; }
static int64_t inode_at(const char *path) { struct stat s; return lstat(path, &s) ? -1 : (int64_t)s.st_ino; }

static void write_record(int step, int64_t file, int64_t offset, const char *path, const char *other, const void *data, size_t bytes) {
    struct record head = {step, getpid(), file, offset, path ? strlen(path) : 0, other ? strlen(other) : 0, bytes};
    struct iovec parts[4] = {{&head, sizeof head}, {(void *)path, head.path_bytes}, {(void *)other, head.other_bytes}, {(void *)data, bytes}};
    REAL("writev", ssize_t, int, const struct iovec *, int);
    ssize_t expected = sizeof head + head.path_bytes + head.other_bytes + bytes;
    if (real(log_file, parts, 4) != expected) { fprintf(stderr, "file_log: the log cannot be written\n"); _exit(70); }
}

/* Files */

static int open_any(int at, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    if ((flags & O_TMPFILE) == O_TMPFILE || !(flags & (O_CREAT | O_TRUNC)) || !inside_of(at, name, path)) return syscall(SYS_openat, at, name, flags, mode);
    lock();
    int is_new = inode_at(path) < 0, fd = syscall(SYS_openat, at, name, flags, mode);
    if (fd >= 0 && is_new) write_record(CREATE, inode_of(fd), 0, path, 0, 0, 0);
    else if (fd >= 0 && flags & O_TRUNC) write_record(TRUNCATE, inode_of(fd), 0, 0, 0, 0, 0);
    unlock();
    return fd;
}

#define MODE(flags) mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *name, int flags, ...) { MODE(flags) return open_any(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags) return open_any(AT_FDCWD, name, flags | O_LARGEFILE, mode); }
int openat(int at, const char *name, int flags, ...) { MODE(flags) return open_any(at, name, flags, mode); }
int openat64(int at, const char *name, int flags, ...) { MODE(flags) return open_any(at, name, flags | O_LARGEFILE, mode); }

static void log_write(int place, int fd, int64_t offset, const void *data, ssize_t bytes) {
    if (bytes > 0) write_record(place == MARKS ? MARK : WRITE, inode_of(fd), offset, 0, 0, data, bytes);
}

ssize_t write(int fd, const void *data, size_t bytes) {
    REAL("write", ssize_t, int, const void *, size_t);
    char path[PATH_MAX];
    int place = place_of(fd, path);
    if (!place) return real(fd, data, bytes);
    lock();
    ssize_t done = real(fd, data, bytes);
    log_write(place, fd, lseek(fd, 0, SEEK_CUR) - done, data, done); /* with O_APPEND the place is known only now */
    unlock();
    return done;
}

static ssize_t pwrite_any(int fd, const void *data, size_t bytes, off_t offset) {
    REAL("pwrite64", ssize_t, int, const void *, size_t, off_t);
    char path[PATH_MAX];
    int place = place_of(fd, path);
    if (!place) return real(fd, data, bytes, offset);
    lock();
    ssize_t done = real(fd, data, bytes, offset);
    log_write(place, fd, offset, data, done);
    unlock();
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) { return pwrite_any(fd, data, bytes, offset); }
ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t offset) { return pwrite_any(fd, data, bytes, offset); }

/* A short write is allowed: the caller goes on with the rest. */
ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL("writev", ssize_t, int, const struct iovec *, int);
    char path[PATH_MAX];
    if (!place_of(fd, path)) return real(fd, parts, count);
    for (int i = 0; i < count; i++) if (parts[i].iov_len) return write(fd, parts[i].iov_base, parts[i].iov_len);
    return 0;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    REAL("pwritev", ssize_t, int, const struct iovec *, int, off_t);
    char path[PATH_MAX];
    if (!place_of(fd, path)) return real(fd, parts, count, offset);
    for (int i = 0; i < count; i++) if (parts[i].iov_len) return pwrite(fd, parts[i].iov_base, parts[i].iov_len, offset);
    return 0;
}

static int truncate_any(int fd, off_t length) {
    REAL("ftruncate64", int, int, off_t);
    char path[PATH_MAX];
    if (!place_of(fd, path)) return real(fd, length);
    lock();
    int result = real(fd, length);
    if (!result) write_record(TRUNCATE, inode_of(fd), length, 0, 0, 0, 0);
    unlock();
    return result;
}

int ftruncate(int fd, off_t length) { return truncate_any(fd, length); }
int ftruncate64(int fd, off_t length) { return truncate_any(fd, length); }

static int sync_any(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    char path[PATH_MAX];
    if (place_of(fd, path) != INSIDE) return real(fd);
    lock();
    int result = real(fd);
    if (!result) write_record(SYNC, inode_of(fd), 0, path, 0, 0, 0);
    unlock();
    return result;
}

int fsync(int fd) { return sync_any("fsync", fd); }
int fdatasync(int fd) { return sync_any("fdatasync", fd); }

/* What changes a file in a way that is not logged: the log says so, and cannot be used. */
static void say_unknown(int fd, const char *call) {
    char path[PATH_MAX];
    if (place_of(fd, path) == INSIDE) { lock(); write_record(UNKNOWN, inode_of(fd), 0, path, call, 0, 0); unlock(); }
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (fd >= 0 && protection & PROT_WRITE && flags & MAP_SHARED) say_unknown(fd, "mmap");
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset); /* dlsym may need memory that is not there yet */
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) { return mmap(at, bytes, protection, flags, fd, offset); }

int posix_fallocate(int fd, off_t offset, off_t bytes) {
    REAL("posix_fallocate", int, int, off_t, off_t);
    say_unknown(fd, "posix_fallocate");
    return real(fd, offset, bytes);
}

ssize_t sendfile(int to, int from, off_t *offset, size_t bytes) {
    REAL("sendfile", ssize_t, int, int, off_t *, size_t);
    say_unknown(to, "sendfile");
    return real(to, from, offset, bytes);
}

ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *at_to, size_t bytes, unsigned flags) {
    REAL("copy_file_range", ssize_t, int, off64_t *, int, off64_t *, size_t, unsigned);
    say_unknown(to, "copy_file_range");
    return real(from, at, to, at_to, bytes, flags);
}

/* Names */

#define NAMED(step, at, name, call) \
    char path[PATH_MAX]; \
    if (!inside_of(at, name, path)) return call; \
    lock(); \
    int64_t file = inode_at(path); \
    int result = call; \
    if (!result) write_record(step, file < 0 ? inode_at(path) : file, 0, path, 0, 0, 0); \
    unlock(); \
    return result

int mkdir(const char *name, mode_t mode) { REAL("mkdir", int, const char *, mode_t); NAMED(MAKE_FOLDER, AT_FDCWD, name, real(name, mode)); }
int mknod(const char *name, mode_t mode, dev_t device) { REAL("mknod", int, const char *, mode_t, dev_t); NAMED(CREATE, AT_FDCWD, name, real(name, mode, device)); }
int unlink(const char *name) { REAL("unlink", int, const char *); NAMED(UNLINK, AT_FDCWD, name, real(name)); }
int rmdir(const char *name) { REAL("rmdir", int, const char *); NAMED(REMOVE_FOLDER, AT_FDCWD, name, real(name)); }
int unlinkat(int at, const char *name, int flags) {
    REAL("unlinkat", int, int, const char *, int);
    NAMED(flags & AT_REMOVEDIR ? REMOVE_FOLDER : UNLINK, at, name, real(at, name, flags));
}

int rename(const char *old, const char *new) {
    REAL("rename", int, const char *, const char *);
    char path[PATH_MAX], other[PATH_MAX];
    int from = inside_of(AT_FDCWD, old, path), to = inside_of(AT_FDCWD, new, other);
    if (!from && !to) return real(old, new);
    lock();
    int result = real(old, new);
    if (!result) write_record(RENAME, inode_at(other), 0, path, other, 0, 0);
    unlock();
    return result;
}
