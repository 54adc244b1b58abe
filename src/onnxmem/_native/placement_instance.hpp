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
  Index sections = 0;
  Int bound = 0;  // the largest sum of sizes of a section, in units

  std::size_t count() const { return rows.size(); }
};

// The reduced problem. `unit` divides every size, hence every offset worth considering.
struct Instance {
  Int unit = 1;
  std::vector<Part> parts;  // hardest (largest bound) first
};

// Buffers of size 0 take no room and are left out. Throws std::overflow_error if some live set passes 2^63.
Instance reduce(const Columns& columns);

}  // namespace onnxmem::placement
