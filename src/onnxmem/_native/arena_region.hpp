// Memory to run in, on the host or on a device, what of it is in use, and the pool that lends it to one run at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "arena_device.hpp"
#include "arena_live.hpp"
#include "arena_pages.hpp"

namespace onnxmem::arena {

// One mapping, or what a device's span covers. While it is lent, `live` belongs to the thread that runs in it;
// otherwise to the pools' lock.
class Region {
 public:
  explicit Region(bool huge, Device* device = nullptr);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  bool reserve(std::size_t bytes) noexcept;  // at least that much; what was in it is lost. False: as it was before
  void shrink(std::size_t bytes) noexcept;   // unmap what lies above
  // Give all pages back. They come again, zeroed, when touched; on a device, with the next `reserve`.
  void trim() noexcept;

  std::byte* base() const { return base_; }
  std::size_t capacity() const { return capacity_; }
  Device* device() const { return device_; }  // null: the host
  std::size_t alignment() const;
  bool holds(const void* p) const {
    return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(base_) < capacity_;
  }

  // The part of some pages that an output may have: all, or of huge ones those that move whole.
  Pages movable(const Pages& pages) const;

  LiveSet live;
  std::vector<Pages> holes;  // pages that outputs took and nothing touched since; the tenant's, as `live` is
  std::vector<Pages> lost;   // addresses that are not ours any more: the region is given up when nobody is in it
  bool lent = false;
  bool unsettled = false;  // the last run in it may not be over on the device
  bool escaped = false;    // a run ended and left buffers behind: not lent again until they are freed
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
  bool lacks(std::size_t start, std::size_t end) const {
    return std::any_of(lost.begin(), lost.end(),
                       [=](const Pages& each) { return each.start < end && start < each.end(); });
  }
  void give_up() noexcept;  // unmap all that is still ours: it is a new one then

 private:
  void take_from_span() noexcept;

  bool huge_;
  Device* const device_;
  std::unique_ptr<Span> span_;  // on a device
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
  Pool(std::size_t limit, bool waits, bool huge, Device* device = nullptr);
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
  // The device is done with what ran in it, too; or else (`settled` is false) is waited for before it is lent again.
  void release(Region& region, bool settled = true);
  Device* device() const { return device_; }

  void trim();
  void shrink(std::size_t bytes);  // idle regions larger than that lose what lies above
  PoolStats stats() const;

 private:
  friend struct Pools;
  bool provide(Region& region, std::size_t bytes);
  void settle();                    // wait for the device where a run may still go on there; without the lock
  Region* take(std::size_t bytes);  // an idle one: the smallest that is large enough; of 0 bytes, the largest
  static void lend(Region& region);
  static void give_back(Region& region);

  const std::size_t limit_;
  const bool waits_, huge_;
  Device* const device_;
  std::vector<std::unique_ptr<Region>> regions_;
  std::uint64_t waited_ = 0, refused_ = 0;
};

// Frees a pointer into a region that the calling thread does not run in. False if no region holds it.
bool release_stray(void* p);
// Put an output's pages back into the regions that they came from, as far as they are missing there and nobody runs in
// them, or only the calling thread does. If somebody else runs there: how many runs are going on. Otherwise 0.
std::size_t take_home(const std::vector<MovedPages>& pieces);
void trim_all(const Device* device = nullptr);  // the idle ones there; null: on the host
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

}  // namespace onnxmem::arena
