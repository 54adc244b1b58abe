// To be preloaded: a wall clock that is days off at every look, forwards or back. Other clocks are as they are.
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <ctime>

namespace {

std::time_t jump() {
  static std::atomic<unsigned> looks{0};
  const unsigned look = looks++;
  return (look % 2 ? 86'400L : -86'400L) * static_cast<long>(look % 7);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const int answer = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += jump();
  return answer;
}

int gettimeofday(timeval* now, void*) noexcept {
  timespec real{};
  clock_gettime(CLOCK_REALTIME, &real);
  *now = {real.tv_sec, real.tv_nsec / 1000};
  return 0;
}

std::time_t time(std::time_t* now) noexcept {
  timespec real{};
  clock_gettime(CLOCK_REALTIME, &real);
  if (now != nullptr) *now = real.tv_sec;
  return real.tv_sec;
}
}
