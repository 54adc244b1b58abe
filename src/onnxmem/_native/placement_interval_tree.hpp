// Which placed buffers share a step with a given lifetime? Each is stored once: memory is linear.
#pragma once

#include <vector>

#include "placement_common.hpp"

namespace onnxmem::placement {

struct Taken;

// A tree over the steps, each node with a centre. A lifetime belongs to the highest node whose centre it contains;
// there it is listed by start and by end, so that a query reads only what it returns.
class IntervalTree {
 public:
  IntervalTree(const Int* lowers, std::size_t count);

  void insert(Int lower, Int upper, const Taken& taken);
  void collect(Int lower, Int upper, std::vector<Taken>& found) const;

 private:
  struct Entry {
    Int key, offset, end;
  };
  struct Node {
    std::vector<Entry> by_start;  // rising
    std::vector<Entry> by_end;    // falling
  };
  void collect(std::size_t low, std::size_t high, Int lower, Int upper, std::vector<Taken>& found) const;

  // Node i, with centre centres_[i], roots the subtree of the half-open range of indices whose middle it is.
  std::vector<Int> centres_;
  std::vector<Node> nodes_;
};

}  // namespace onnxmem::placement
