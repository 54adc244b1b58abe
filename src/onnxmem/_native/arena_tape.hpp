// What one run asked for, and where each buffer shall lie next time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace arena {

// The calls of a run as rows, one per buffer: its size and when it was allocated and freed, counted in calls.
struct Trace {
  std::vector<std::int64_t> sizes, lowers, uppers;  // an upper of -1: it outlived the run
};

// Writes a trace down while a run is served from the heap.
class Recorder {
 public:
  void allocated(void* block, std::size_t size);
  void freed(void* block);
  const Trace& trace() const { return trace_; }

 private:
  Trace trace_;
  std::unordered_map<void*, std::size_t> alive_;
  std::int64_t clock_ = 0;
};

// One call of the recorded sequence.
struct Event {
  std::uint32_t buffer;
  bool begins;
};

// A trace with offsets: the sequence that a replay is checked against. Immutable, so that any number of runs may
// follow it at once.
class Tape {
 public:
  // An offset of -1 puts a buffer on the heap. `guard` bytes behind each placed buffer stay free. A `cut` tape may
  // be followed by anything: it is the part of a run that is always the same. Throws std::invalid_argument unless
  // offsets are aligned and no two live buffers share a byte.
  Tape(Trace trace, std::vector<std::int64_t> offsets, std::size_t guard, bool cut);

  const std::vector<Event>& events() const { return events_; }
  std::size_t size_of(std::uint32_t buffer) const { return static_cast<std::size_t>(trace_.sizes[buffer]); }
  std::int64_t offset_of(std::uint32_t buffer) const { return offsets_[buffer]; }
  std::size_t guard() const { return guard_; }
  bool cut() const { return cut_; }
  std::size_t peak() const { return peak_; }

 private:
  void order_events();
  void check_placement();

  Trace trace_;
  std::vector<std::int64_t> offsets_;
  std::size_t guard_;
  bool cut_;
  std::vector<Event> events_;
  std::size_t peak_ = 0;
};

}  // namespace arena
