#include "arena_tape.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "arena_heap.hpp"
#include "arena_region.hpp"

namespace arena {

void Recorder::allocated(void* block, std::size_t size) {
  alive_[block] = trace_.sizes.size();
  trace_.sizes.push_back(static_cast<std::int64_t>(size));
  trace_.lowers.push_back(clock_++);
  trace_.uppers.push_back(-1);
}

void Recorder::freed(void* block) {
  const auto found = alive_.find(block);
  if (found == alive_.end()) return;  // older than this run
  trace_.uppers[found->second] = clock_++;
  alive_.erase(found);
}

Tape::Tape(Trace trace, std::vector<std::int64_t> offsets, std::size_t guard, bool cut)
    : trace_(std::move(trace)), offsets_(std::move(offsets)), guard_(footprint(guard)), cut_(cut) {
  const std::size_t count = trace_.sizes.size();
  if (trace_.lowers.size() != count || trace_.uppers.size() != count || offsets_.size() != count)
    throw std::invalid_argument("columns of different length");
  if (count > std::numeric_limits<std::uint32_t>::max()) throw std::invalid_argument("too many buffers");
  order_events();
  check_placement();
}

void Tape::order_events() {
  std::vector<std::pair<std::int64_t, Event>> timed;
  timed.reserve(2 * trace_.sizes.size());
  for (std::uint32_t i = 0; i < trace_.sizes.size(); ++i) {
    const std::int64_t lower = trace_.lowers[i], upper = trace_.uppers[i];
    if (trace_.sizes[i] <= 0 || lower < 0 || (upper != -1 && upper <= lower))
      throw std::invalid_argument("a buffer without size or lifetime");
    timed.emplace_back(lower, Event{i, true});
    if (upper != -1) timed.emplace_back(upper, Event{i, false});
  }
  std::sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t k = 1; k < timed.size(); ++k)
    if (timed[k - 1].first == timed[k].first) throw std::invalid_argument("two calls at the same step");
  events_.reserve(timed.size());
  for (const auto& [time, event] : timed) events_.push_back(event);
}

void Tape::check_placement() {
  LiveSet live;
  for (const Event& event : events_) {
    const std::int64_t offset = offsets_[event.buffer];
    if (offset < 0) continue;
    const std::size_t start = static_cast<std::size_t>(offset), bytes = footprint(size_of(event.buffer));
    if (!event.begins) {
      live.remove(start);
      continue;
    }
    if (start % kAlignment != 0) throw std::invalid_argument("an offset is not aligned");
    if (bytes > std::numeric_limits<std::int64_t>::max() - guard_ - start)
      throw std::invalid_argument("a buffer passes the end of memory");
    if (!live.add({start, start + bytes + guard_, size_of(event.buffer)}))
      throw std::invalid_argument("two live buffers overlap");
    peak_ = std::max(peak_, start + bytes + guard_);
  }
}

}  // namespace arena
