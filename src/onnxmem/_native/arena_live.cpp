#include "arena_live.hpp"

#include <algorithm>
#include <iterator>

namespace onnxmem::arena {

bool LiveSet::add(const Interval& interval) {
  const auto next = std::lower_bound(intervals_.begin(), intervals_.end(), interval.start,
                                     [](const Interval& each, std::size_t start) { return each.start < start; });
  if (next != intervals_.end() && next->start < interval.end) return false;
  if (next != intervals_.begin() && std::prev(next)->end > interval.start) return false;
  intervals_.insert(next, interval);
  return true;
}

std::vector<Interval>::iterator LiveSet::at(std::size_t start) {
  const auto found = std::lower_bound(intervals_.begin(), intervals_.end(), start,
                                      [](const Interval& each, std::size_t at) { return each.start < at; });
  return found != intervals_.end() && found->start == start ? found : intervals_.end();
}

bool LiveSet::pass_on(std::size_t start, std::size_t size) {
  const auto found = at(start);
  if (found == intervals_.end() || found->size != size || found->holders != 1) return false;
  ++found->holders;
  return true;
}

std::optional<Interval> LiveSet::remove(std::size_t start) {
  const auto found = at(start);
  if (found == intervals_.end()) return std::nullopt;
  --found->holders;
  const Interval interval = *found;
  if (interval.holders == 0) intervals_.erase(found);
  return interval;
}

std::size_t lowest_gap(const std::vector<Interval>& intervals, std::size_t bytes) {
  std::size_t free_from = 0;
  for (const Interval& each : intervals) {
    if (each.start >= free_from && each.start - free_from >= bytes) break;
    free_from = std::max(free_from, each.end);
  }
  return free_from;
}

}  // namespace onnxmem::arena
