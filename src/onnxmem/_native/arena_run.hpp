// A run: the calls that one thread makes to the allocator between `begin` and `end`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "arena_heap.hpp"
#include "arena_region.hpp"
#include "arena_tape.hpp"

namespace onnxmem::arena {

enum class DeviationKind {
  place_taken,
  allocation_after_the_last,
  allocation_instead_of_free,
  allocation_of_another_size,
  free_instead_of_allocation,
  free_of_another_buffer,
  buffer_outlived_the_run,
  ended_early,
};

// The first call of a run that was not the recorded one.
struct Deviation {
  DeviationKind kind;
  std::size_t step;
  std::size_t expected_bytes, asked_bytes;
};

struct Replayed {
  std::optional<Deviation> deviation;
  std::uint64_t overruns = 0;  // guards found overwritten, where there are guards
  std::int64_t marks = 0;
};

class Run {
 public:
  explicit Run(Device* on) : device(on) {}
  virtual ~Run() = default;
  virtual void* allocate(std::size_t size) noexcept = 0;
  virtual bool release(void* p) noexcept = 0;  // false: not this run's business
  virtual std::int64_t calls() const { return 0; }

  Device* const device;  // whose allocator is called; null: the host's
  const std::uint64_t number = next_number();
  Run* outer = nullptr;
  std::int64_t token = 0;  // what marks of this run are known by; 0: nobody asks for any
  std::int64_t marks = 0;

 protected:
  void* from_heap(std::size_t size, Large large, bool sparing = false) noexcept;
  bool to_heap(void* p) noexcept;

 private:
  static std::uint64_t next_number();
};

// Served from the heap, nothing noted.
class HeapRun final : public Run {
 public:
  explicit HeapRun(Device* on = nullptr) : Run(on) {}
  void* allocate(std::size_t size) noexcept override;
  bool release(void*) noexcept override { return false; }
};

// Served without a plan, every call noted: in a region, if it has one, as long as there is room; otherwise from the
// heap. There, large blocks are mappings of their own, and a device is waited for before more is taken of it, so that
// the memory a recording run takes is what is alive at most, not what a heap remembers. A region keeps its pages from
// run to run: shapes that are always new run as fast.
class RecordingRun final : public Run {
 public:
  // `limited`: give up, and say so, once noting everything takes more than following it can save. `outlasting`: the
  // allocations, by number, that outlived other runs; an output in the region would keep others out of it.
  explicit RecordingRun(bool limited, Region* region = nullptr, std::vector<std::int64_t> outlasting = {},
                        Device* on = nullptr)
      : Run(on), limited_(limited), region_(region), outlasting_(std::move(outlasting)) {}
  void* allocate(std::size_t size) noexcept override;
  bool release(void* p) noexcept override;
  std::int64_t calls() const override { return recorder_.calls(); }
  Trace trace() const { return recorder_.trace(); }
  bool complete() const { return complete_; }

 private:
  void* in_region(std::size_t size) noexcept;
  void spare() noexcept;  // lets go of freed memory that would come on top of the most that was alive
  bool outlasts() const;  // will the next allocation, if this run is like the others?

  Recorder recorder_;
  const bool limited_;
  Region* const region_;
  const std::vector<std::int64_t> outlasting_;  // sorted
  bool complete_ = true;
};

// Served from a region at the tape's offsets as long as every call is the recorded one. After the first that is not,
// nothing that was placed moves, and large buffers get the pages that are free in the region at other addresses; what
// finds none, and small ones, come from the heap. On a device, all of them do.
class ReplayingRun final : public Run {
 public:
  // Throws std::invalid_argument if the tape is not for memory of this kind.
  ReplayingRun(const Tape& tape, Region& region);
  void* allocate(std::size_t size) noexcept override;
  bool release(void* p) noexcept override;
  std::int64_t calls() const override { return static_cast<std::int64_t>(step_); }
  Replayed finish();

 private:
  bool following() const { return !deviation_ && step_ < tape_.events().size(); }
  void deviate(DeviationKind kind, std::size_t expected, std::size_t asked) noexcept;
  void* place(std::uint32_t buffer, std::size_t size) noexcept;
  void* beside(std::uint32_t buffer, std::size_t size) noexcept;  // one that has no place
  void* off_tape(std::size_t size) noexcept;

  const Tape& tape_;
  Region& region_;
  std::size_t step_ = 0;
  std::optional<Deviation> deviation_;
  std::uint64_t overruns_ = 0;
  bool overflowed_ = false;  // there was no room for something
};

// Make `run` the calling thread's, until `end`. Runs nest.
void begin(Run& run);
void end(Run& run);

// The two entry points of the allocator. `allocate` returns null for size 0 and where there is no memory.
void* allocate(std::size_t size) noexcept;
void release(void* p) noexcept;
// Those of a device's.
void* allocate_on(Device& device, std::size_t size) noexcept;
void release_on(Device& device, void* p) noexcept;
std::uint64_t unknown_frees();

// How far the calling thread's run has come; ONNX Runtime asks at the beginning and at the end of each node while it
// profiles, and writes the answers down with the node's name.
struct Mark {
  std::int64_t token, calls, number;  // of the run; calls noted so far; how many times it was asked
};
std::optional<Mark> mark() noexcept;
void mark_as(std::int64_t token);  // answer for the calling thread's run, and with this token

// Make fork() safe; once per process.
void watch_forks();

}  // namespace onnxmem::arena
