// One buffer after the other, each into the lowest gap that holds it, or the smallest.
#pragma once

#include <optional>

#include "placement_common.hpp"
#include "placement_instance.hpp"

namespace onnxmem::placement {

// What a buffer must stay clear of: addresses [offset, end).
struct Taken {
  Int offset, end;
};

// Walks over taken addresses by rising offset and remembers where the new buffer goes.
class GapFinder {
 public:
  GapFinder(Int size, bool best_fit) : size_(size), best_fit_(best_fit) {}

  // True when nothing that follows can change the answer.
  bool pass(Int offset, Int end) {
    const Int gap = offset - free_from_;
    if (gap >= size_) {
      if (!best_fit_) {
        answer_ = free_from_;
        return true;
      }
      if (gap < smallest_) smallest_ = gap, answer_ = free_from_;
    }
    if (end > free_from_) free_from_ = end;
    return false;
  }
  // The offset; above everything if no gap was wide enough.
  Int answer() const {
    if (answer_ >= 0) return answer_;
    if (free_from_ > kLargest - size_) throw std::overflow_error("the arena would pass 2^63 bytes");
    return free_from_;
  }

 private:
  Int size_;
  bool best_fit_;
  Int free_from_ = 0, answer_ = -1, smallest_ = kLargest;
};

// Shows the finder what is taken by rising offset, sorted only as far as needed: most buffers find their gap early.
void walk_by_offset(std::vector<Taken>& taken, GapFinder& finder);

// Offsets for all buffers, placed in `order`, which must be a permutation; nothing when the watch ended it.
//
// Three ways to the same offsets: with a few thousand buffers, one list by offset; in order of their starts, only
// those alive at that step; otherwise an interval tree, which holds every buffer once.
std::optional<std::vector<Int>> place_in_order(const Columns& columns, const Int* order, bool best_fit, Watch& watch);

}  // namespace onnxmem::placement
