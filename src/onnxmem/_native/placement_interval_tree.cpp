#include "placement_interval_tree.hpp"

#include <algorithm>

#include "placement_greedy.hpp"

namespace onnxmem::placement {

IntervalTree::IntervalTree(const Int* lowers, std::size_t count) {
  // Starts alone are enough as centres: every lifetime contains its own.
  centres_.assign(lowers, lowers + count);
  std::sort(centres_.begin(), centres_.end());
  centres_.erase(std::unique(centres_.begin(), centres_.end()), centres_.end());
  nodes_.resize(centres_.size());
}

void IntervalTree::insert(Int lower, Int upper, const Taken& taken) {
  std::size_t low = 0, high = centres_.size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (upper <= centres_[middle]) {
      high = middle;
    } else if (lower > centres_[middle]) {
      low = middle + 1;
    } else {
      Node& node = nodes_[middle];
      const auto start = std::upper_bound(node.by_start.begin(), node.by_start.end(), lower,
                                          [](Int value, const Entry& entry) { return value < entry.key; });
      node.by_start.insert(start, {lower, taken.offset, taken.end});
      const auto end = std::upper_bound(node.by_end.begin(), node.by_end.end(), upper,
                                        [](Int value, const Entry& entry) { return value > entry.key; });
      node.by_end.insert(end, {upper, taken.offset, taken.end});
      return;
    }
  }
}

void IntervalTree::collect(Int lower, Int upper, std::vector<Taken>& found) const {
  collect(0, centres_.size(), lower, upper, found);
}

void IntervalTree::collect(std::size_t low, std::size_t high, Int lower, Int upper, std::vector<Taken>& found) const {
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    const Node& node = nodes_[middle];
    if (upper <= centres_[middle]) {
      // All of the node's lifetimes reach past the centre: those that begin in time overlap.
      for (const Entry& entry : node.by_start) {
        if (entry.key >= upper) break;
        found.push_back({entry.offset, entry.end});
      }
      high = middle;
    } else if (lower > centres_[middle]) {
      for (const Entry& entry : node.by_end) {
        if (entry.key <= lower) break;
        found.push_back({entry.offset, entry.end});
      }
      low = middle + 1;
    } else {
      for (const Entry& entry : node.by_start) found.push_back({entry.offset, entry.end});
      collect(low, middle, lower, upper, found);
      low = middle + 1;
    }
  }
}

}  // namespace onnxmem::placement
