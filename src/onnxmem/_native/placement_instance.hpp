// A placement problem made small: whole units instead of bytes, sections instead of steps, independent parts.
#pragma once

#include <vector>

#include "placement_common.hpp"

namespace onnxmem::placement {

// The buffers of a problem as the caller has them; nothing is copied.
struct Columns {
  const Int* lowers;
  const Int* uppers;
  const Int* sizes;
  std::size_t count;
};

// From `step` on, the buffer `row` needs only its lowest `size` bytes.
struct Shrink {
  Index row;
  Int step, size;
};

// One part: buffers connected through time, none of which shares a step with a buffer of another part.
//
// A section is a maximal set of buffers alive together. Steps whose live set lies within a neighbour's add no
// constraint, so a lifetime becomes the half-open range of sections [first, last).
struct Part {
  std::vector<Index> rows;    // which buffers of the problem these are
  std::vector<Index> first;   // per buffer
  std::vector<Index> last;    // per buffer
  std::vector<Int> size;      // per buffer, in units
  std::vector<double> steps;  // per buffer: how long it lives, for orderings only
  // Per buffer that shrinks, its size in each of its sections, falling; nothing for the others, and for none of them
  // where none does.
  std::vector<std::vector<Int>> sizes;
  Index sections = 0;
  Int bound = 0;  // the largest sum of sizes of a section, in units

  std::size_t count() const { return rows.size(); }
  bool shrinks(std::size_t b) const { return !sizes.empty() && !sizes[b].empty(); }
  Int size_in(std::size_t b, Index section) const {
    if (sizes.empty() || sizes[b].empty()) [[likely]]
      return size[b];
    return sizes[b][static_cast<std::size_t>(section - first[b])];
  }
};

// The reduced problem. `unit` divides every size, hence every offset worth considering.
struct Instance {
  Int unit = 1;
  std::vector<Part> parts;  // hardest (largest bound) first
};

// Buffers of size 0 take no room and are left out. Throws std::overflow_error if some live set passes 2^63, and
// std::invalid_argument unless `shrinks` come by row and step, each within the buffer's life and to less than before.
Instance reduce(const Columns& columns, const std::vector<Shrink>& shrinks = {});

}  // namespace onnxmem::placement
