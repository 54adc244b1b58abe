// A plan for somebody who is waiting: a few greedy ones, and whether the best of them is as good as any can be.
#pragma once

#include <vector>

#include "placement_instance.hpp"

namespace onnxmem::placement {

struct AtOnce {
  std::vector<Int> offsets;
  Int peak = 0;
  Int bound = 0;  // the most that is alive at once: no plan is smaller
};

// In the order of their starts, of their sizes, and of sizes times lifetimes, until one meets the bound. Takes well
// below a millisecond for a few hundred buffers, and leaves nothing behind.
AtOnce place_at_once(const Columns& columns);

}  // namespace onnxmem::placement
