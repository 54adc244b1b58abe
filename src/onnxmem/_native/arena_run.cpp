#include "arena_run.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "arena_device.hpp"
#include "arena_heap.hpp"
#include "arena_outputs.hpp"

namespace onnxmem::arena {

namespace {

thread_local Run* current = nullptr;
thread_local Run* current_on_device = nullptr;  // of whichever
std::atomic<std::uint64_t> unknown{0};

constexpr int kFreed = 0xDB, kGuard = 0xA7;

bool intact(const std::byte* guard, std::size_t bytes) {
  return std::all_of(guard, guard + bytes, [](std::byte each) { return each == static_cast<std::byte>(kGuard); });
}

}  // namespace

std::uint64_t Run::next_number() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

void* Run::from_heap(std::size_t size, Large large, bool sparing) noexcept {
  return device != nullptr ? device->allocate(size, number, sparing) : heap().allocate(size, large);
}

bool Run::to_heap(void* p) noexcept { return device != nullptr ? device->release(p, number) : heap().release(p); }

void* HeapRun::allocate(std::size_t size) noexcept { return from_heap(size, Large::shared); }

bool RecordingRun::outlasts() const {
  return std::binary_search(outlasting_.begin(), outlasting_.end(), static_cast<std::int64_t>(recorder_.count()));
}

void* RecordingRun::in_region(std::size_t size) noexcept {
  if (region_ == nullptr) return nullptr;
  try {
    const std::size_t bytes = footprint(size, region_->alignment()), start = region_->lowest_gap(bytes);
    if (bytes == 0 || start > region_->capacity() || bytes > region_->capacity() - start) return nullptr;
    return region_->live.add({start, start + bytes, size}) ? region_->base() + start : nullptr;
  } catch (...) {
    return nullptr;
  }
}

void* RecordingRun::allocate(std::size_t size) noexcept {
  void* block = complete_ && !outlasts() ? in_region(size) : nullptr;
  if (block == nullptr && region_ != nullptr && !device && size >= kHandedFrom)
    block = outputs().take_free(*region_, size);
  if (block == nullptr) block = from_heap(size, Large::recycled, true);
  if (block == nullptr || !complete_) return block;
  try {
    recorder_.allocated(block, size);
    complete_ = !limited_ || recorder_.worthwhile();
  } catch (...) {
    complete_ = false;
  }
  if (!complete_) recorder_.forget();
  spare();
  return block;
}

void RecordingRun::spare() noexcept {
  // Small blocks are not of the recycled kind, so it cannot know when they make up the peak. An eighth is for what a
  // run takes besides.
  const std::int64_t most = recorder_.peak() - recorder_.peak() / 8, free = most - recorder_.live();
  if (complete_ && !device) heap().keep_within(free > 0 ? static_cast<std::size_t>(free) : 0);
}

bool RecordingRun::release(void* p) noexcept {
  recorder_.freed(p);
  if (region_ == nullptr || !region_->holds(p)) {
    const bool known = to_heap(p);
    spare();
    return known;
  }
  if (!region_->live.remove(static_cast<std::size_t>(static_cast<std::byte*>(p) - region_->base())))
    unknown.fetch_add(1, std::memory_order_relaxed);  // freed twice, or not the beginning of a buffer
  return true;
}

ReplayingRun::ReplayingRun(const Tape& tape, Region& region) : Run(region.device()), tape_(tape), region_(region) {
  if (tape.alignment() % region.alignment() != 0) throw std::invalid_argument("a plan for memory of another kind");
  if (device && tape.guard() != 0) throw std::invalid_argument("there are no guards on a device");
}

void ReplayingRun::deviate(DeviationKind kind, std::size_t expected, std::size_t asked) noexcept {
  if (!deviation_) deviation_ = {kind, step_, expected, asked};
}

void* ReplayingRun::place(std::uint32_t buffer, std::size_t size) noexcept {
  const std::size_t start = static_cast<std::size_t>(tape_.offset_of(buffer));
  const std::size_t padded = start + footprint(size, tape_.alignment()), end = padded + tape_.guard();
  const bool takes_over = tape_.takes_over(buffer);
  bool free = false;
  try {
    free = end <= region_.capacity() && !region_.lacks(start, end) &&
           (takes_over ? region_.live.pass_on(start, size) : region_.live.add({start, end, size}));
  } catch (...) {}
  if (!free) {
    // The tape was checked, but addresses may have been lost. Any other place is as right.
    deviate(DeviationKind::place_taken, size, size);
    return off_tape(size);
  }
  ++step_;
  region_.touch(start, end);
  if (tape_.guard() != 0 && !takes_over) std::memset(region_.base() + start + size, kGuard, end - start - size);
  return region_.base() + start;
}

void* ReplayingRun::beside(std::uint32_t buffer, std::size_t size) noexcept {
  if (device) return from_heap(size, Large::recycled);
  if (tape_.size_of(buffer) == 0 && size >= kHandedFrom) {
    // One of any size, which is there for nobody knows how long: should it keep pages until their place is needed, new
    // ones come there.
    if (void* block = outputs().take_free(region_, size)) return block;
  }
  if (const std::vector<Pages>* pages = tape_.pages_for(buffer)) {
    if (void* kept = outputs().reuse(size)) return kept;
    if (void* output = outputs().take(region_, *pages, size)) return output;
  }
  return heap().allocate(size, Large::recycled);
}

void* ReplayingRun::off_tape(std::size_t size) noexcept {
  if (device || size < kHandedFrom) return from_heap(size, Large::shared);
  if (void* block = outputs().take_free(region_, size)) return block;
  overflowed_ = true;
  return heap().allocate(size, Large::recycled);
}

void* ReplayingRun::allocate(std::size_t size) noexcept {
  if (size == 0) return nullptr;
  if (!following()) {
    if (step_ >= tape_.events().size() && !tape_.cut()) deviate(DeviationKind::allocation_after_the_last, 0, size);
    return off_tape(size);
  }
  const Event event = tape_.events()[step_];
  const std::size_t expected = tape_.size_of(event.buffer);
  if (!event.begins) {
    deviate(DeviationKind::allocation_instead_of_free, expected, size);
    return off_tape(size);
  }
  if (expected != size && expected != 0) {
    deviate(DeviationKind::allocation_of_another_size, expected, size);
    return off_tape(size);
  }
  if (tape_.offset_of(event.buffer) < 0) {
    ++step_;
    return beside(event.buffer, size);
  }
  return place(event.buffer, size);
}

bool ReplayingRun::release(void* p) noexcept {
  if (!region_.holds(p)) return false;
  const std::size_t start = static_cast<std::size_t>(static_cast<std::byte*>(p) - region_.base());
  const std::optional<Interval> freed = region_.live.remove(start);
  if (!freed) {
    unknown.fetch_add(1, std::memory_order_relaxed);  // freed twice, or not the beginning of a buffer
    return true;
  }
  if (tape_.guard() != 0 && freed->holders == 0) {
    if (!intact(region_.base() + start + freed->size, freed->end - start - freed->size)) ++overruns_;
    std::memset(p, kFreed, freed->size);
  }
  if (!following()) return true;
  const Event event = tape_.events()[step_];
  if (event.begins)
    deviate(DeviationKind::free_instead_of_allocation, tape_.size_of(event.buffer), freed->size);
  else if (tape_.offset_of(event.buffer) != static_cast<std::int64_t>(start))
    deviate(DeviationKind::free_of_another_buffer, tape_.size_of(event.buffer), freed->size);
  else
    ++step_;
  return true;
}

Replayed ReplayingRun::finish() {
  if (overflowed_) heap().keep_within(0);
  if (!region_.live.empty())
    deviate(DeviationKind::buffer_outlived_the_run, 0, 0);
  else if (following())
    deviate(DeviationKind::ended_early, tape_.size_of(tape_.events()[step_].buffer), 0);
  return {deviation_, overruns_, marks};
}

namespace {

Run*& innermost(const Run& run) { return run.device ? current_on_device : current; }

Run* running_on(const Device& device) {
  Run* run = current_on_device;
  while (run != nullptr && run->device != &device) run = run->outer;
  return run;
}

}  // namespace

void begin(Run& run) {
  run.outer = innermost(run);
  innermost(run) = &run;
}

void end(Run& run) { innermost(run) = run.outer; }

void* allocate_on(Device& device, std::size_t size) noexcept {
  if (size == 0) return nullptr;
  Run* run = running_on(device);
  return run != nullptr ? run->allocate(size) : device.allocate(size, 0);
}

void release_on(Device& device, void* p) noexcept {
  if (p == nullptr) return;
  Run* innermost = running_on(device);
  for (Run* run = innermost; run != nullptr; run = run->outer)
    if (run->device == &device && run->release(p)) return;
  if (device.release(p, innermost != nullptr ? innermost->number : 0)) return;
  try {
    if (release_stray(p)) return;
  } catch (...) {}
  unknown.fetch_add(1, std::memory_order_relaxed);
}

void* allocate(std::size_t size) noexcept {
  if (size == 0) return nullptr;
  return current != nullptr ? current->allocate(size) : heap().allocate(size, Large::shared);
}

void release(void* p) noexcept {
  if (p == nullptr) return;
  for (Run* run = current; run != nullptr; run = run->outer)
    if (run->release(p)) return;
  if (heap().release(p)) return;
  try {
    if (outputs().release(p)) return;
    if (release_stray(p)) return;
  } catch (...) {}
  // Neither ours nor anyone's we know: doing nothing is the one thing that cannot be wrong twice.
  unknown.fetch_add(1, std::memory_order_relaxed);
}

std::optional<Mark> mark() noexcept {
  if (current == nullptr || current->token == 0) return std::nullopt;
  return Mark{current->token, current->calls(), ++current->marks};
}

void mark_as(std::int64_t token) {
  if (current != nullptr) current->token = token;
}

std::uint64_t unknown_frees() { return unknown.load(std::memory_order_relaxed); }

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(
        [] {
          before_fork();
          lock_devices();
          outputs().lock.lock();
          heap().lock_all();
        },
        [] {
          heap().unlock_all();
          outputs().lock.unlock();
          unlock_devices();
          after_fork_in_parent();
        },
        [] {
          heap().unlock_all();
          outputs().lock.unlock();
          unlock_devices();
          after_fork_in_child();
        });
  });
}

}  // namespace onnxmem::arena
