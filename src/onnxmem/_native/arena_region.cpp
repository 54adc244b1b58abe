#include "arena_region.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <new>

#include "arena_heap.hpp"

namespace onnxmem::arena {

Region::Region(bool huge, Device* device)
    : huge_(huge), device_(device), span_(device != nullptr ? std::make_unique<Span>(*device) : nullptr) {}

Region::~Region() {
  if (!span_) give_up();
}

void Region::give_up() noexcept {
  std::sort(lost.begin(), lost.end(), [](const Pages& a, const Pages& b) { return a.start < b.start; });
  std::size_t from = 0;
  for (const Pages& each : lost) {
    if (from < each.start) munmap(base_ + from, each.start - from);
    from = each.end();
  }
  if (from < capacity_) munmap(base_ + from, capacity_ - from);
  base_ = nullptr;
  capacity_ = 0;
  holes.clear();
  lost.clear();
}

std::size_t Region::alignment() const { return device_ != nullptr ? kDeviceAlignment : kAlignment; }

void Region::take_from_span() noexcept {
  base_ = span_->base();
  capacity_ = span_->end();
}

bool Region::reserve(std::size_t bytes) noexcept {
  if (span_) {
    const bool there = span_->cover(0, bytes);
    take_from_span();
    return there;
  }
  bytes = whole_pages(std::max<std::size_t>(bytes, 1));
  if (bytes == 0) return false;
  if (bytes <= capacity_) return true;
  // Not MAP_NORESERVE: what is more than the machine has shall be refused, and not end the process when it is touched.
  void* fresh = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return false;
  if (huge_) madvise(fresh, bytes, MADV_HUGEPAGE);
  if (base_ != nullptr) munmap(base_, capacity_);
  base_ = static_cast<std::byte*>(fresh);
  capacity_ = bytes;
  holes.clear();
  return true;
}

void Region::shrink(std::size_t bytes) noexcept {
  if (span_) {
    span_->cut(bytes);
    take_from_span();
    return;
  }
  bytes = whole_pages(std::max<std::size_t>(bytes, 1));
  if (bytes == 0 || bytes >= capacity_) return;
  munmap(base_ + bytes, capacity_ - bytes);
  capacity_ = bytes;
  std::erase_if(holes, [bytes](const Pages& hole) { return hole.end() > bytes; });
}

std::size_t Region::lowest_gap(std::size_t bytes) const {
  if (holes.empty() && lost.empty()) return live.lowest_gap(bytes);
  UsedPages used;
  for (const Interval& each : live.intervals()) used.add(each.start, each.end);
  for (const auto* pages : {&holes, &lost})
    for (const Pages& each : *pages) used.add(each.start, each.end());
  for (const Pages& gap : used.gaps(capacity_))
    if (gap.bytes >= bytes) return gap.start;
  return capacity_;
}

Pages Region::movable(const Pages& pages) const {
  if (!huge_) return pages;
  const std::uintptr_t base = reinterpret_cast<std::uintptr_t>(base_);
  const std::uintptr_t start = (base + pages.start + kTable - 1) / kTable * kTable;
  const std::uintptr_t end = (base + pages.end()) / kTable * kTable;
  return start < end ? Pages{start - base, end - start} : Pages{0, 0};
}

void Region::refill(const MovedPages& moved) {
  const Pages home{static_cast<std::size_t>(moved.home - base_), moved.bytes};
  std::vector<Pages> left;
  left.reserve(holes.size() + 2);
  lost.reserve(lost.size() + holes.size());
  for (const Pages& hole : holes) {
    const std::size_t start = std::max(hole.start, home.start), end = std::min(hole.end(), home.end());
    const Move result =
        start < end ? move_pages(moved.at + (start - home.start), base_ + start, end - start) : Move::refused;
    if (result == Move::refused) {
      left.push_back(hole);
      continue;
    }
    // These addresses may be somebody else's now, but whoever runs here has buffers around them.
    if (result == Move::lost) lost.push_back({start, end - start});
    if (hole.start < start) left.push_back({hole.start, start - hole.start});
    if (end < hole.end()) left.push_back({end, hole.end() - end});
  }
  holes = std::move(left);
  if (!lost.empty() && !lent) give_up();
}

void Region::trim() noexcept {
  if (span_) {
    shrink(0);
    return;
  }
  holes.clear();
  if (base_ != nullptr) madvise(base_, capacity_, MADV_DONTNEED);
}

// All pools of the process, and the regions of pools that ended while buffers in them were alive.
struct Pools {
  std::mutex lock;
  // Behind a pointer, so that a forked child can have one without the waiters of its parent.
  std::condition_variable* freed = new std::condition_variable;
  std::vector<Pool*> all;
  std::vector<std::unique_ptr<Region>> orphans;

  template <typename Visit>
  void each_region(Visit visit) {
    for (Pool* pool : all)
      for (auto& region : pool->regions_) visit(*region);
    for (auto& region : orphans) visit(*region);
  }
};

namespace {

Pools& pools() {
  static Pools& process_wide = *new Pools;
  return process_wide;
}

bool idle(const Region& region) { return !region.lent && !region.escaped; }

// Idle, and the device is done with it: then its memory may go.
bool at_rest(const Region& region) { return idle(region) && !region.unsettled; }

}  // namespace

Pool::Pool(std::size_t limit, bool waits, bool huge, Device* device)
    : limit_(limit), waits_(waits), huge_(huge), device_(device) {
  const std::scoped_lock guard(pools().lock);
  pools().all.push_back(this);
}

Pool::~Pool() {
  settle();
  const std::scoped_lock guard(pools().lock);
  std::erase(pools().all, this);
  // Whoever still holds a buffer in one of them keeps it mapped.
  for (auto& region : regions_)
    if (!idle(*region)) pools().orphans.push_back(std::move(region));
}

Region* Pool::take(std::size_t bytes) {
  Region* fitting = nullptr;
  Region* largest = nullptr;
  for (auto& region : regions_) {
    if (!idle(*region)) continue;
    if (region->capacity() >= bytes && (!fitting || region->capacity() < fitting->capacity())) fitting = region.get();
    if (!largest || region->capacity() > largest->capacity()) largest = region.get();
  }
  if (fitting && bytes != 0) return fitting;
  if (!largest && regions_.size() < limit_) {
    regions_.push_back(std::make_unique<Region>(huge_, device_));
    largest = regions_.back().get();
  }
  return largest;
}

bool Pool::provide(Region& region, std::size_t bytes) {
  if (region.reserve(bytes)) return true;
  if (device_ == nullptr) return false;
  // A device has no more than it has: what is kept there for later has to go.
  pools().each_region([&](Region& other) {
    if (&other != &region && other.device() == device_ && at_rest(other)) other.trim();
  });
  device_->trim();
  return region.reserve(bytes);
}

Pool::Loan Pool::acquire(std::size_t bytes, double seconds, bool again) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::unique_lock guard(pools().lock);
  for (bool waited = again, settled = false;;) {
    if (Region* region = take(bytes)) {
      if (!provide(*region, bytes)) {
        if (device_ == nullptr || settled) break;
        settled = true;
        guard.unlock();
        settle();
        device_->settle();
        guard.lock();
        continue;
      }
      lend(*region);
      guard.unlock();
      if (region->unsettled) device_->synchronize();
      region->unsettled = false;
      return {Answer::lent, region};
    }
    const auto self = std::this_thread::get_id();
    const bool inside = std::any_of(regions_.begin(), regions_.end(),
                                    [&](const auto& region) { return region->lent && region->tenant == self; });
    const bool hopeless =
        std::all_of(regions_.begin(), regions_.end(), [](const auto& region) { return region->escaped; });
    if (!waits_ || inside || hopeless) break;
    if (!waited) ++waited_;
    waited = true;
    if (std::chrono::steady_clock::now() >= end) return {Answer::busy, nullptr};
    pools().freed->wait_until(guard, std::chrono::time_point_cast<std::chrono::steady_clock::duration>(end));
  }
  ++refused_;
  return {Answer::refused, nullptr};
}

void Pool::lend(Region& region) {
  region.holes.clear();  // what is missing comes again, zeroed, when it is touched
  region.lent = true;
  region.tenant = std::this_thread::get_id();
}

void Pool::give_back(Region& region) {
  for (const std::size_t start : region.strays) region.live.remove(start);
  region.strays.clear();
  region.lent = false;
  region.tenant = {};
  region.escaped = !region.live.empty();
  if (!region.lost.empty() && !region.escaped) region.give_up();
}

void Pool::release(Region& region, bool settled) {
  const std::scoped_lock guard(pools().lock);
  region.unsettled = !settled;
  give_back(region);
  pools().freed->notify_all();
}

void Pool::settle() {
  if (device_ == nullptr) return;
  std::vector<Region*> waiting;
  {
    const std::scoped_lock guard(pools().lock);
    for (auto& region : regions_)
      if (!region->lent && region->unsettled) waiting.push_back(region.get());
    for (Region* each : waiting) each->lent = true;  // nobody gets it meanwhile
  }
  if (waiting.empty()) return;
  device_->synchronize();
  const std::scoped_lock guard(pools().lock);
  for (Region* each : waiting) {
    each->unsettled = false;
    give_back(*each);
  }
  pools().freed->notify_all();
}

void Pool::trim() {
  settle();
  const std::scoped_lock guard(pools().lock);
  for (auto& region : regions_)
    if (at_rest(*region)) region->trim();
}

void Pool::shrink(std::size_t bytes) {
  settle();
  const std::scoped_lock guard(pools().lock);
  for (auto& region : regions_)
    if (at_rest(*region)) region->shrink(bytes);
}

PoolStats Pool::stats() const {
  const std::scoped_lock guard(pools().lock);
  PoolStats stats;
  for (const auto& region : regions_) {
    ++stats.regions;
    stats.bytes += region->capacity();
    stats.largest = std::max(stats.largest, region->capacity());
    stats.lent += region->lent;
    stats.escaped += region->escaped;
  }
  stats.waits = waited_;
  stats.refusals = refused_;
  return stats;
}

bool release_stray(void* p) {
  Pools& every = pools();
  const std::scoped_lock guard(every.lock);
  bool found = false;
  every.each_region([&](Region& region) {
    if (!region.holds(p)) return;
    found = true;
    const std::size_t start = static_cast<std::size_t>(static_cast<std::byte*>(p) - region.base());
    if (region.lent) {
      region.strays.push_back(start);  // its tenant looks at them when its run ends
      return;
    }
    region.live.remove(start);
    if (region.escaped && region.live.empty()) {
      region.escaped = false;
      if (!region.lost.empty()) region.give_up();
    }
  });
  std::erase_if(every.orphans, [](const auto& region) { return at_rest(*region); });
  if (found) every.freed->notify_all();
  return found;
}

std::size_t take_home(const std::vector<MovedPages>& pieces) {
  const std::scoped_lock guard(pools().lock);
  std::size_t lent = 0;
  bool busy = false;
  pools().each_region([&](Region& region) {
    lent += region.lent;
    for (const MovedPages& each : pieces) {
      if (!region.holds(each.home)) continue;
      const bool mine = region.lent && region.tenant == std::this_thread::get_id();
      busy = busy || (region.lent && !mine);
      if (mine || idle(region)) region.refill(each);
    }
  });
  return busy ? lent : 0;
}

void trim_all(const Device* device) {
  const std::scoped_lock guard(pools().lock);
  pools().each_region([device](Region& region) {
    if (region.device() == device && at_rest(region)) region.trim();
  });
}

void before_fork() { pools().lock.lock(); }

void after_fork_in_parent() { pools().lock.unlock(); }

void after_fork_in_child() {
  Pools& every = pools();
  every.freed = new std::condition_variable;  // the old one counts waiters that do not exist here
  // Only the forking thread goes on: what the others ran in is free.
  every.each_region([](Region& region) {
    if (!region.lent || region.tenant == std::this_thread::get_id()) return;
    region.lent = false;
    region.live.clear();
    region.strays.clear();
    region.holes.clear();
    if (!region.lost.empty()) region.give_up();
  });
  every.lock.unlock();
}

}  // namespace onnxmem::arena
