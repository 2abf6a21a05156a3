// Stands between a process and its disk (LD_PRELOAD): counts what changes files below a folder, logs it, and at a chosen
// moment ends the process, fills the disk or fails a sync. One process, one armed folder; files named *-shm are left out,
// since SQLite maps them and makes them anew.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum mode { RECORD, STOP, FULL, SYNC_FAILS };
enum kind { CREATE = 'c', EMPTY = 'e', WRITE = 'w', SIZE = 't', SYNC = 's', RENAME = 'r', UNLINK = 'u', FOLDER = 'd', MARK = 'm' };

static char root[PATH_MAX];
static int armed, log_fd = -1, mode;
static long moment, count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void put(const void *data, size_t size) {
  const char *at = data;
  while (size > 0) {
    long done = syscall(SYS_write, log_fd, at, size);
    if (done <= 0) return;
    at += done;
    size -= done;
  }
}

static void record(char kind, const char *path, const char *other, uint64_t offset, const void *data, uint64_t size) {
  if (log_fd < 0) return;
  uint32_t lengths[2] = {(uint32_t)strlen(path), (uint32_t)strlen(other)};
  uint64_t numbers[2] = {offset, size};
  put(&kind, 1);
  put(lengths, sizeof lengths);
  put(numbers, sizeof numbers);
  put(path, lengths[0]);
  put(other, lengths[1]);
  if (data) put(data, size);
}

static int inside(const char *path) {
  size_t length = strlen(root), end = strlen(path);
  if (!armed || strncmp(path, root, length) || (path[length] && path[length] != '/')) return 0;
  return end < 4 || strcmp(path + end - 4, "-shm");
}

static int path_of(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  char *gone = strstr(path, " (deleted)");
  return !gone && inside(path);
}

static int absolute(int folder, const char *given, char *path) {
  if (given[0] == '/') return snprintf(path, PATH_MAX, "%s", given) < PATH_MAX && inside(path);
  char base[PATH_MAX];
  if (folder == AT_FDCWD) {
    if (!getcwd(base, sizeof base)) return 0;
  } else {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, base, sizeof base - 1);
    if (length <= 0) return 0;
    base[length] = 0;
  }
  return snprintf(path, PATH_MAX, "%s/%s", base, given) < PATH_MAX && inside(path);
}

// Counts an operation; returns the error it is to fail with, or 0. Called with the lock held.
static int step(char kind) {
  long number = ++count;
  if (mode == STOP && number == moment) syscall(SYS_exit_group, 9);
  if (mode == FULL && number >= moment && (kind == WRITE || kind == CREATE || kind == FOLDER)) return ENOSPC;
  if (mode == SYNC_FAILS && number >= moment && kind == SYNC) return EIO;
  return 0;
}

#define FAIL(error) do { pthread_mutex_unlock(&lock); errno = (error); return -1; } while (0)

void faults_arm(const char *folder, const char *log, int what, long at) {
  pthread_mutex_lock(&lock);
  snprintf(root, sizeof root, "%s", folder);
  mode = what;
  moment = at;
  count = 0;
  log_fd = log[0] ? syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  armed = 1;
  pthread_mutex_unlock(&lock);
}

long faults_disarm(void) {
  pthread_mutex_lock(&lock);
  armed = 0;
  pthread_mutex_unlock(&lock);
  return count;
}

void faults_mark(const char *text) {
  pthread_mutex_lock(&lock);
  record(MARK, text, "", 0, 0, 0);
  pthread_mutex_unlock(&lock);
}

static int open_at(int folder, const char *given, int flags, mode_t permissions) {
  char path[PATH_MAX];
  int watched = (flags & (O_CREAT | O_TRUNC)) && (flags & O_TMPFILE) != O_TMPFILE && absolute(folder, given, path);
  if (!watched) return syscall(SYS_openat, folder, given, flags, permissions);
  pthread_mutex_lock(&lock);
  struct stat state;
  int there = stat(path, &state) == 0;
  char kind = there ? (flags & O_TRUNC && state.st_size ? EMPTY : 0) : CREATE;
  int error = kind ? step(kind) : 0;
  if (error) FAIL(error);
  int fd = syscall(SYS_openat, folder, given, flags, permissions);
  if (fd >= 0 && kind) record(kind, path, "", 0, 0, 0);
  pthread_mutex_unlock(&lock);
  return fd;
}

#define OPEN(name, before, folder)                                       \
  int name(before const char *path, int flags, ...) {                    \
    va_list rest;                                                        \
    va_start(rest, flags);                                               \
    mode_t permissions = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0; \
    va_end(rest);                                                        \
    return open_at(folder, path, flags, permissions);                    \
  }
#define NOTHING
#define FOLDER_FD int folder,
OPEN(open, NOTHING, AT_FDCWD)
OPEN(open64, NOTHING, AT_FDCWD)
OPEN(openat, FOLDER_FD, folder)
OPEN(openat64, FOLDER_FD, folder)

static ssize_t write_at(int fd, const void *data, size_t size, off_t offset, int placed) {
  char path[PATH_MAX];
  if (!armed || !path_of(fd, path)) return placed ? syscall(SYS_pwrite64, fd, data, size, offset) : syscall(SYS_write, fd, data, size);
  pthread_mutex_lock(&lock);
  int error = step(WRITE);
  if (error) FAIL(error);
  if (!placed) {
    struct stat state;
    int appends = fcntl(fd, F_GETFL) & O_APPEND;
    offset = appends && fstat(fd, &state) == 0 ? state.st_size : lseek(fd, 0, SEEK_CUR);
  }
  ssize_t done = placed ? syscall(SYS_pwrite64, fd, data, size, offset) : syscall(SYS_write, fd, data, size);
  if (done > 0) record(WRITE, path, "", offset, data, done);
  pthread_mutex_unlock(&lock);
  return done;
}

ssize_t write(int fd, const void *data, size_t size) { return write_at(fd, data, size, 0, 0); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return write_at(fd, data, size, offset, 1); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) { return write_at(fd, data, size, offset, 1); }

static int size_to(int fd, off_t size) {
  char path[PATH_MAX];
  if (!armed || !path_of(fd, path)) return syscall(SYS_ftruncate, fd, size);
  pthread_mutex_lock(&lock);
  int error = step(SIZE);
  if (error) FAIL(error);
  int done = syscall(SYS_ftruncate, fd, size);
  if (done == 0) record(SIZE, path, "", size, 0, 0);
  pthread_mutex_unlock(&lock);
  return done;
}

int ftruncate(int fd, off_t size) { return size_to(fd, size); }
int ftruncate64(int fd, off64_t size) { return size_to(fd, size); }

static int sync_file(int fd, long call) {
  char path[PATH_MAX];
  if (!armed || !path_of(fd, path)) return syscall(call, fd);
  pthread_mutex_lock(&lock);
  int error = step(SYNC);
  if (error) FAIL(error);
  record(SYNC, path, "", 0, 0, 0);
  pthread_mutex_unlock(&lock);
  return 0;  // what survives is computed from the log, so the real disk need not be waited for
}

int fsync(int fd) { return sync_file(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }

int rename(const char *from, const char *to) {
  char source[PATH_MAX], target[PATH_MAX];
  int watched = absolute(AT_FDCWD, from, source) & absolute(AT_FDCWD, to, target);
  if (!watched) return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
  pthread_mutex_lock(&lock);
  int error = step(RENAME);
  if (error) FAIL(error);
  int done = syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
  if (done == 0) record(RENAME, source, target, 0, 0, 0);
  pthread_mutex_unlock(&lock);
  return done;
}

static int unlink_at(int folder, const char *given, int flags) {
  char path[PATH_MAX];
  if (!absolute(folder, given, path)) return syscall(SYS_unlinkat, folder, given, flags);
  pthread_mutex_lock(&lock);
  struct stat state;
  int there = lstat(path, &state) == 0;
  int error = there ? step(UNLINK) : 0;
  if (error) FAIL(error);
  int done = syscall(SYS_unlinkat, folder, given, flags);
  if (done == 0) record(UNLINK, path, "", 0, 0, 0);
  pthread_mutex_unlock(&lock);
  return done;
}

int unlink(const char *path) { return unlink_at(AT_FDCWD, path, 0); }
int unlinkat(int folder, const char *path, int flags) { return unlink_at(folder, path, flags); }

int mkdir(const char *given, mode_t permissions) {
  char path[PATH_MAX];
  if (!absolute(AT_FDCWD, given, path)) return syscall(SYS_mkdirat, AT_FDCWD, given, permissions);
  pthread_mutex_lock(&lock);
  int error = step(FOLDER);
  if (error) FAIL(error);
  int done = syscall(SYS_mkdirat, AT_FDCWD, given, permissions);
  if (done == 0) record(FOLDER, path, "", 0, 0, 0);
  pthread_mutex_unlock(&lock);
  return done;
}
