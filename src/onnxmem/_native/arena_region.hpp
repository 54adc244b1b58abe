// Mapped memory to run in, what of it is in use, and the pool that lends it to one run at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "arena_pages.hpp"

namespace onnxmem::arena {

struct Interval {
  std::size_t start, end, size;  // `size` as asked for; `end` includes alignment and guard
  std::uint32_t holders = 1;     // buffers that lie there: two while a place passes on from one to the next
};

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
  std::size_t lowest_gap(std::size_t bytes) const;  // where so much is free
  const std::vector<Interval>& intervals() const { return intervals_; }
  bool empty() const { return intervals_.empty(); }
  void clear() { intervals_.clear(); }

 private:
  std::vector<Interval>::iterator at(std::size_t start);

  std::vector<Interval> intervals_;
};

// One mapping. While it is lent, `live` belongs to the thread that runs in it; otherwise to the pools' lock.
class Region {
 public:
  explicit Region(bool huge) : huge_(huge) {}
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  bool reserve(std::size_t bytes) noexcept;  // at least that much; what was in it is lost. False: as it was before
  void shrink(std::size_t bytes) noexcept;   // unmap what lies above
  void trim() noexcept;                      // give all pages back; they come again, zeroed, when touched

  std::byte* base() const { return base_; }
  std::size_t capacity() const { return capacity_; }
  bool holds(const void* p) const {
    return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(base_) < capacity_;
  }

  // The part of some pages that an output may have: all, or of huge ones those that move whole.
  Pages movable(const Pages& pages) const;

  LiveSet live;
  std::vector<Pages> holes;  // pages that outputs took and nothing touched since; the tenant's, as `live` is
  bool lent = false;
  bool escaped = false;  // a run ended and left buffers behind: not lent again until they are freed
  std::thread::id tenant;
  std::vector<std::size_t> strays;  // freed by other threads than the tenant; under the pools' lock

  // Where so much is free that outputs have not taken the pages of.
  std::size_t lowest_gap(std::size_t bytes) const;
  // Something is written here: what outputs took of it is not missing any more.
  void touch(std::size_t start, std::size_t end) {
    if (!holes.empty()) std::erase_if(holes, [=](const Pages& each) { return each.start < end && start < each.end(); });
  }
  // Put those pages that are missing here back.
  void refill(const MovedPages& moved);

 private:
  bool huge_;
  std::byte* base_ = nullptr;
  std::size_t capacity_ = 0;
};

struct PoolStats {
  std::size_t regions = 0, bytes = 0, largest = 0, lent = 0, escaped = 0;
  std::uint64_t waits = 0, refusals = 0;
};

// Regions for as many runs at once as `limit` says. All pools share one lock, held only while a region changes hands.
class Pool {
 public:
  Pool(std::size_t limit, bool waits, bool huge);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  enum class Answer { lent, busy, refused };
  struct Loan {
    Answer answer;
    Region* region;
  };
  // A region of at least `bytes`. Waits up to `seconds` if all are lent and the pool is one that waits; then `busy`
  // means: ask again. `refused`: there is none to be had, take the heap. A thread that already runs in this pool is
  // refused at once, because it would wait for itself.
  // Who asks `again` has been counted as waiting already.
  Loan acquire(std::size_t bytes, double seconds, bool again = false);
  void release(Region& region);

  void trim();
  void shrink(std::size_t bytes);  // idle regions larger than that lose what lies above
  PoolStats stats() const;

 private:
  friend struct Pools;
  Region* take(std::size_t bytes);  // an idle one: the smallest that is large enough; of 0 bytes, the largest
  static void lend(Region& region);

  const std::size_t limit_;
  const bool waits_, huge_;
  std::vector<std::unique_ptr<Region>> regions_;
  std::uint64_t waited_ = 0, refused_ = 0;
};

// Frees a pointer into a region that the calling thread does not run in. False if no region holds it.
bool release_stray(void* p);
// Put an output's pages back into the regions that they came from, as far as they are missing there and nobody runs in
// them, or only the calling thread does. If somebody else runs there: how many runs are going on. Otherwise 0.
std::size_t take_home(const std::vector<MovedPages>& pieces);
void trim_all();
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

}  // namespace onnxmem::arena
