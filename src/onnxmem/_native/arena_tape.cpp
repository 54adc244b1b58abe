#include "arena_tape.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <utility>

#include "arena_heap.hpp"
#include "arena_region.hpp"

namespace onnxmem::arena {

namespace {

constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();
// Following a trace takes some 25 bytes per buffer. So many are always all right, and one more for each of these:
constexpr std::size_t kFree = 8192, kBytesPerBuffer = 2048;

}  // namespace

void Recorder::allocated(void* block, std::size_t size) {
  if (clock_ == kNever) throw std::length_error("too many calls");
  alive_[block] = rows_.size();
  rows_.push_back({static_cast<std::int64_t>(size), clock_++, kNever});
  live_ += static_cast<std::int64_t>(size);
  peak_ = std::max(peak_, live_);
}

void Recorder::freed(void* block) noexcept {
  const auto found = alive_.find(block);
  if (found == alive_.end()) return;  // older than this run
  Row& row = rows_[found->second];
  row.upper = clock_++;
  live_ -= row.size;
  alive_.erase(found);
}

void Recorder::forget() noexcept {
  rows_ = {};
  alive_ = {};
}

bool Recorder::worthwhile() const { return rows_.size() <= kFree + static_cast<std::size_t>(peak_) / kBytesPerBuffer; }

Trace Recorder::trace() const {
  Trace trace;
  for (auto* column : {&trace.sizes, &trace.lowers, &trace.uppers}) column->reserve(rows_.size());
  for (const Row& row : rows_) {
    trace.sizes.push_back(row.size);
    trace.lowers.push_back(row.lower);
    trace.uppers.push_back(row.upper == kNever ? -1 : static_cast<std::int64_t>(row.upper));
  }
  return trace;
}

namespace {

// The calls in order; throws unless each step is one call.
std::vector<Event> in_order(const Trace& trace) {
  const std::size_t count = trace.sizes.size();
  if (trace.lowers.size() != count || trace.uppers.size() != count)
    throw std::invalid_argument("columns of different length");
  if (count >= std::size_t{1} << 31) throw std::invalid_argument("too many buffers");
  std::vector<std::pair<std::int64_t, Event>> timed;
  timed.reserve(2 * count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::int64_t lower = trace.lowers[i], upper = trace.uppers[i];
    if (trace.sizes[i] < 0 || lower < 0 || (upper != -1 && upper <= lower))
      throw std::invalid_argument("a buffer without size or lifetime");
    timed.emplace_back(lower, Event{i, true});
    if (upper != -1) timed.emplace_back(upper, Event{i, false});
  }
  std::sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Event> events;
  events.reserve(timed.size());
  for (std::size_t k = 0; k < timed.size(); ++k) {
    if (k > 0 && timed[k - 1].first == timed[k].first) throw std::invalid_argument("two calls at the same step");
    events.push_back(timed[k].second);
  }
  return events;
}

}  // namespace

Tape::Tape(const Trace& trace, std::vector<std::int64_t> offsets, std::size_t guard, bool cut,
           std::vector<std::int64_t> over, std::size_t alignment)
    : sizes_(trace.sizes), offsets_(std::move(offsets)), over_(std::move(over)), guard_(footprint(guard, alignment)),
      alignment_(alignment), cut_(cut), events_(in_order(trace)) {
  if (!std::has_single_bit(alignment)) throw std::invalid_argument("an alignment is not a power of two");
  if (offsets_.size() != sizes_.size()) throw std::invalid_argument("columns of different length");
  for (std::size_t i = 0; i < sizes_.size(); ++i)
    if (sizes_[i] == 0 && (offsets_[i] >= 0 || trace.uppers[i] != -1))
      throw std::invalid_argument("a buffer of any size has a place or an end");
  check_sharing(trace);
  check_placement();
  plan_hand_overs();
}

void Tape::check_sharing(const Trace& trace) const {
  if (over_.empty()) return;
  if (over_.size() != sizes_.size()) throw std::invalid_argument("columns of different length");
  for (std::size_t after = 0; after < over_.size(); ++after) {
    if (over_[after] < 0) continue;
    const std::size_t before = static_cast<std::size_t>(over_[after]);
    if (before >= sizes_.size()) throw std::invalid_argument("a buffer over one that is not there");
    if (offsets_[after] < 0 || offsets_[after] != offsets_[before] || sizes_[after] != sizes_[before])
      throw std::invalid_argument("a buffer over one of another place or size");
    const std::int64_t begin = trace.lowers[after], freed = trace.uppers[before], end = trace.uppers[after];
    if (trace.lowers[before] >= begin || freed <= begin || (end != -1 && end <= freed))
      throw std::invalid_argument("a buffer over one that does not end in it");
  }
}

Trace Tape::trace() const {
  Trace trace{sizes_, std::vector<std::int64_t>(sizes_.size(), 0), std::vector<std::int64_t>(sizes_.size(), -1)};
  for (std::size_t step = 0; step < events_.size(); ++step)
    (events_[step].begins ? trace.lowers : trace.uppers)[events_[step].buffer] = static_cast<std::int64_t>(step);
  return trace;
}

std::vector<std::int64_t> place_in_sequence(const Trace& trace, std::size_t alignment) {
  std::vector<std::int64_t> offsets(trace.sizes.size(), -1);
  LiveSet live;
  for (const Event event : in_order(trace)) {
    if (trace.uppers[event.buffer] == -1) continue;
    if (!event.begins) {
      live.remove(static_cast<std::size_t>(offsets[event.buffer]));
      continue;
    }
    const std::size_t bytes = footprint(static_cast<std::size_t>(trace.sizes[event.buffer]), alignment);
    const std::size_t start = live.lowest_gap(bytes);
    live.add({start, start + bytes, bytes});
    offsets[event.buffer] = static_cast<std::int64_t>(start);
  }
  return offsets;
}

void Tape::check_placement() {
  LiveSet live;
  for (const Event& event : events_) {
    const std::int64_t offset = offsets_[event.buffer];
    if (offset < 0) continue;
    const std::size_t start = static_cast<std::size_t>(offset), bytes = footprint(size_of(event.buffer), alignment_);
    if (!event.begins) {
      live.remove(start);
      continue;
    }
    if (start % alignment_ != 0) throw std::invalid_argument("an offset is not aligned");
    // One after the other: a difference below zero would be a very large one.
    constexpr std::size_t end = std::numeric_limits<std::int64_t>::max();
    if (guard_ > end || start > end - guard_ || bytes > end - guard_ - start)
      throw std::invalid_argument("a buffer passes the end of memory");
    // Whose place it is was checked: of equal offset, alive now, and alone there.
    if (takes_over(event.buffer) ? !live.pass_on(start, size_of(event.buffer))
                                 : !live.add({start, start + bytes + guard_, size_of(event.buffer)}))
      throw std::invalid_argument("two live buffers overlap");
    peak_ = std::max(peak_, start + bytes + guard_);
  }
}

}  // namespace onnxmem::arena
