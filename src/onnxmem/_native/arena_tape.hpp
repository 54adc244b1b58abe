// What one run asked for, and where each buffer shall lie next time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "arena_heap.hpp"
#include "arena_pages.hpp"

namespace onnxmem::arena {

// The calls of a run as rows, one per buffer: its size and when it was allocated and freed, counted in calls.
struct Trace {
  std::vector<std::int64_t> sizes, lowers, uppers;  // an upper of -1: it outlived the run
};

// Writes a trace down while a run is served from the heap.
class Recorder {
 public:
  void allocated(void* block, std::size_t size);
  void freed(void* block) noexcept;
  void forget() noexcept;
  std::size_t count() const { return rows_.size(); }
  std::int64_t calls() const { return clock_; }
  std::int64_t live() const { return live_; }
  std::int64_t peak() const { return peak_; }

  // Is the trace small beside the memory it describes? That of a long loop may not be.
  bool worthwhile() const;
  Trace trace() const;

 private:
  struct Row {
    std::int64_t size;
    std::uint32_t lower, upper;
  };
  std::deque<Row> rows_;  // grows without copying: a recording run shall not take more than it must
  std::unordered_map<void*, std::size_t> alive_;
  std::uint32_t clock_ = 0;
  std::int64_t live_ = 0, peak_ = 0;
};

// One call of the recorded sequence.
struct Event {
  std::uint32_t buffer : 31;
  std::uint32_t begins : 1;
};

// Pages of the region that nothing touches from the allocation of an output until the run ends: at most as many as it
// needs. No page is in two of them.
struct HandOver {
  std::uint32_t buffer;
  std::vector<Pages> pages;
};

// From this size on outputs are worth moving pages; below, the heap does not give them a mapping of their own either.
constexpr std::size_t kHandedFrom = std::size_t{128} << 10;

// A trace with offsets: the sequence that a replay is checked against. Immutable, so that any number of runs may
// follow it at once. A loop can make a hundred thousand calls, so it is kept small.
class Tape {
 public:
  // An offset of -1 puts a buffer on the heap; there, a size of 0 stands for any size. `guard` bytes behind each placed
  // buffer stay free. A `cut` tape may be followed by anything: it is the part of a run that is always the same.
  // `over` says for each buffer over which other it is written, -1 for none: the place of that one, which is about to
  // be freed, passes on to it. Empty: nothing shares. Throws std::invalid_argument unless offsets are aligned and no
  // two live buffers share a byte but those.
  Tape(const Trace& trace, std::vector<std::int64_t> offsets, std::size_t guard, bool cut,
       std::vector<std::int64_t> over = {}, std::size_t alignment = kAlignment);

  const std::vector<Event>& events() const { return events_; }
  std::size_t size_of(std::uint32_t buffer) const { return static_cast<std::size_t>(sizes_[buffer]); }
  std::int64_t offset_of(std::uint32_t buffer) const { return offsets_[buffer]; }
  const std::vector<std::int64_t>& offsets() const { return offsets_; }
  bool takes_over(std::uint32_t buffer) const { return !over_.empty() && over_[buffer] >= 0; }
  const std::vector<std::int64_t>& over() const { return over_; }
  Trace trace() const;
  std::size_t guard() const { return guard_; }
  std::size_t alignment() const { return alignment_; }
  bool cut() const { return cut_; }
  std::size_t peak() const { return peak_; }
  const std::vector<Pages>* pages_for(std::uint32_t buffer) const;  // null if there are none

 private:
  void check_sharing(const Trace& trace) const;
  void check_placement();
  void plan_hand_overs();

  std::vector<std::int64_t> sizes_, offsets_, over_;
  std::size_t guard_, alignment_;
  bool cut_;
  std::vector<Event> events_;
  std::size_t peak_ = 0;
  std::vector<HandOver> hand_overs_;  // by buffer
};

// Offsets in the order of the calls, each as low as there is room at that moment. Good enough for very many very
// small buffers, and fast: it looks only at what is alive. Those that outlive the run stay at -1.
std::vector<std::int64_t> place_in_sequence(const Trace& trace, std::size_t alignment = kAlignment);

}  // namespace onnxmem::arena
