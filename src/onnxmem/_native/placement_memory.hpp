// States that are known to have no solution, by a 128-bit fingerprint.
#pragma once

#include <cstdint>
#include <vector>

namespace onnxmem::placement {

// Two different states with the same 128 bits would let the search skip a solution or prove too much. At a million
// states a second for a day the chance is below 1e-16: far less likely than a flipped bit in memory.
struct Fingerprint {
  std::uint64_t high = 0, low = 0;
  bool operator==(const Fingerprint&) const = default;
};

// A table of fixed size: a newer state takes the place of an older one. Forgetting costs time, never correctness.
class FailedStates {
 public:
  explicit FailedStates(unsigned bits) : slots_(std::size_t{1} << bits), mask_(slots_.size() - 1) {}

  bool contains(const Fingerprint& state) const { return slots_[state.low & mask_] == state; }
  void insert(const Fingerprint& state) { slots_[state.low & mask_] = state; }

 private:
  std::vector<Fingerprint> slots_;
  std::uint64_t mask_;
};

}  // namespace onnxmem::placement
