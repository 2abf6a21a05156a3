// Moves the calendar clock of a process (LD_PRELOAD) by as many seconds as the file CLOCK_OFFSET_FILE says, at any time
// while it runs. The clock that never jumps, CLOCK_MONOTONIC, is left alone.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void open_offset(void) {
  const char *path = getenv("CLOCK_OFFSET_FILE");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *mapped = mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped != MAP_FAILED) offset = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_REALTIME && offset) now->tv_sec += *offset;
  return result;
}

int gettimeofday(struct timeval *now, void *zone) {
  (void)zone;
  struct timespec precise;
  int result = clock_gettime(CLOCK_REALTIME, &precise);
  if (result == 0) *now = (struct timeval){precise.tv_sec, precise.tv_nsec / 1000};
  return result;
}

time_t time(time_t *at) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
