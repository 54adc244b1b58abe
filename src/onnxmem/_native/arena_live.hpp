// Which parts of some memory are in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace onnxmem::arena {

struct Interval {
  std::size_t start, end, size;  // `size` as asked for; `end` includes alignment and guard
  std::uint32_t holders = 1;     // buffers that lie there: two while a place passes on from one to the next
  std::uint64_t run = 0;         // on a device's heap: the run that asked for it
};

// Where so much is free beside these, which are sorted by their beginning.
std::size_t lowest_gap(const std::vector<Interval>& intervals, std::size_t bytes);

// The placed buffers that are alive, by offset. A new one can only touch its two neighbours, so looking there is
// proof that no byte is handed out twice. A sorted vector: a few dozen are alive at a time, and it allocates nothing
// once it has grown.
class LiveSet {
 public:
  bool add(const Interval& interval);  // false, and nothing done, if it would overlap
  // One more buffer of that size where there is one already; false, and nothing done, if it is not alone there.
  bool pass_on(std::size_t start, std::size_t size);
  // One holder less, and how many are left, which keep the place; nothing if none starts there.
  std::optional<Interval> remove(std::size_t start);
  std::size_t lowest_gap(std::size_t bytes) const { return arena::lowest_gap(intervals_, bytes); }
  const std::vector<Interval>& intervals() const { return intervals_; }
  bool empty() const { return intervals_.empty(); }
  void clear() { intervals_.clear(); }

 private:
  std::vector<Interval>::iterator at(std::size_t start);

  std::vector<Interval> intervals_;
};

}  // namespace onnxmem::arena
