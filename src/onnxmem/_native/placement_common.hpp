// What every part of the placement core shares: integers, the watch that ends long work, and chance.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <vector>

namespace onnxmem::placement {

using Int = std::int64_t;
// Sums of sizes, and sizes times steps: both pass 2^63 although no single number does.
__extension__ using Wide = __int128;
using Index = std::int32_t;

constexpr Int kLargest = std::numeric_limits<Int>::max();

// Says when to stop: a moment in time, or an interruption that `poll` reports (it may also throw).
// Only the thread that entered from the interpreter asks it; the others are told through atomics.
class Watch {
 public:
  using Clock = std::chrono::steady_clock;

  Watch(double seconds, std::function<bool()> poll) : poll_(std::move(poll)) {
    // A year is for ever, and does not overflow the clock's nanoseconds.
    constexpr double kForever = 365.0 * 24 * 3600;
    const double bounded = seconds > 0 ? (seconds < kForever ? seconds : kForever) : 0.0;
    end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(bounded));
  }

  // Time is up, or someone pressed Ctrl-C.
  bool over() {
    if (poll_ && poll_()) interrupted_ = true;
    return interrupted_ || Clock::now() >= end_;
  }
  bool interrupted() const { return interrupted_; }
  Clock::time_point end() const { return end_; }

 private:
  std::function<bool()> poll_;
  Clock::time_point end_;
  bool interrupted_ = false;
};

// A good 64-bit mixer (the finalizer of splitmix64); also the generator behind every random choice.
inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Random numbers that are the same on every platform, unlike the standard library's distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mix(seed)) {}
  std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15ULL); }
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(next() % count); }
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace onnxmem::placement
