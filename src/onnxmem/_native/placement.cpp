// Placement of buffers in an arena. Flat arrays in, offsets out; the interpreter lock is released while it works.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

namespace nb = nanobind;

namespace {

using Column = nb::ndarray<const std::int64_t, nb::numpy, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Offsets = nb::ndarray<std::int64_t, nb::numpy, nb::shape<-1>, nb::c_contig>;

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

struct Placed {
  std::int64_t offset, end, lower, upper;
};

// Where does a buffer go among those placed before it? `placed` is sorted by offset.
std::int64_t find_gap(const std::vector<Placed>& placed, std::int64_t lower, std::int64_t upper, std::int64_t size,
                      bool best_fit) {
  std::int64_t free_from = 0, best_offset = -1, best_gap = kLargest;
  for (const Placed& other : placed) {
    if (other.upper <= lower || upper <= other.lower) continue;
    const std::int64_t gap = other.offset - free_from;
    if (gap >= size) {
      if (!best_fit) return free_from;
      if (gap < best_gap) best_gap = gap, best_offset = free_from;
    }
    free_from = std::max(free_from, other.end);
  }
  if (best_offset >= 0) return best_offset;
  if (free_from > kLargest - size) throw std::overflow_error("the arena would pass 2^63 bytes");
  return free_from;
}

Offsets place_in_order(Column lowers, Column uppers, Column sizes, Column order, bool best_fit) {
  const std::size_t count = sizes.shape(0);
  if (lowers.shape(0) != count || uppers.shape(0) != count || order.shape(0) != count)
    throw std::invalid_argument("columns of different length");
  auto* offsets = new std::int64_t[count]();
  nb::capsule owner(offsets, [](void* p) noexcept { delete[] static_cast<std::int64_t*>(p); });
  {
    nb::gil_scoped_release unlocked;
    std::vector<Placed> placed;
    placed.reserve(count);
    for (std::size_t k = 0; k < count; ++k) {
      const std::int64_t i = order(k);
      if (i < 0 || static_cast<std::size_t>(i) >= count) throw std::invalid_argument("order is not a permutation");
      if (sizes(i) == 0) continue;  // takes no room: anywhere will do
      const std::int64_t offset = find_gap(placed, lowers(i), uppers(i), sizes(i), best_fit);
      const Placed row{offset, offset + sizes(i), lowers(i), uppers(i)};
      placed.insert(std::upper_bound(placed.begin(), placed.end(), row,
                                     [](const Placed& a, const Placed& b) { return a.offset < b.offset; }),
                    row);
      offsets[i] = offset;
    }
  }
  return Offsets(offsets, {count}, owner);
}

}  // namespace

NB_MODULE(placement, module) {
  module.def("place_in_order", &place_in_order, nb::arg("lowers"), nb::arg("uppers"), nb::arg("sizes"),
             nb::arg("order"), nb::arg("best_fit"));
}
