// States that are known to have no solution, by a 128-bit fingerprint.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace onnxmem::placement {

// Two different states with the same 128 bits would let the search skip a solution or prove too much. At a million
// states a second for a day the chance is below 1e-16: far less likely than a flipped bit in memory.
struct Fingerprint {
  std::uint64_t high = 0, low = 0;
  bool operator==(const Fingerprint&) const = default;
};

// A table of fixed size: a newer state takes the place of an older one. Forgetting costs time, never correctness.
//
// It is a mapping of its own, not a block of the heap: searches run in processes that count their memory, malloc keeps
// large blocks it got back (and from then on takes even larger ones from the heap), and a page that no state has hit
// is never touched.
class FailedStates {
 public:
  explicit FailedStates(unsigned bits) : count_(std::size_t{1} << bits), slots_(map(count_)) {}
  ~FailedStates() { munmap(slots_, count_ * sizeof(Fingerprint)); }
  FailedStates(const FailedStates&) = delete;
  FailedStates& operator=(const FailedStates&) = delete;

  bool contains(const Fingerprint& state) const { return slots_[state.low & (count_ - 1)] == state; }
  void insert(const Fingerprint& state) { slots_[state.low & (count_ - 1)] = state; }

 private:
  static Fingerprint* map(std::size_t count) {
    void* slots =
        mmap(nullptr, count * sizeof(Fingerprint), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slots == MAP_FAILED) throw std::bad_alloc();
    return static_cast<Fingerprint*>(slots);
  }

  std::size_t count_;
  Fingerprint* slots_;
};

}  // namespace onnxmem::placement
