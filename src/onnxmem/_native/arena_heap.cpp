#include "arena_heap.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace onnxmem::arena {

namespace {

constexpr std::size_t kLargeFrom = std::size_t{128} << 10;

void* map(std::size_t bytes) {
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return block == MAP_FAILED ? nullptr : block;
}

// A larger mapping with the pages of a smaller one, wherever there is room for it; if there is none, a fresh one.
void* extended(void* block, std::size_t from, std::size_t to) {
  void* moved = mremap(block, from, to, MREMAP_MAYMOVE);
  if (moved != MAP_FAILED) return moved;
  munmap(block, from);
  return map(to);
}

void* aligned(void* raw) {
  const auto address = reinterpret_cast<std::uintptr_t>(raw);
  return reinterpret_cast<void*>((address + kAlignment - 1) & ~std::uintptr_t{kAlignment - 1});
}

}  // namespace

std::size_t whole_pages(std::size_t size) {
  static const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size > SIZE_MAX - (page - 1) ? 0 : (size + page - 1) / page * page;
}

void* Recycler::take(std::size_t bytes) noexcept {
  const std::scoped_lock guard(lock);
  void* block = from_kept(bytes);
  if (block == nullptr) {
    most_bytes_ = std::max(most_bytes_, used_bytes_ + bytes);
    const Kept part = largest_kept();  // all of them are smaller
    unmap_above(most_bytes_ - used_bytes_ - bytes);
    block = part.block != nullptr ? extended(part.block, part.bytes, bytes) : map(bytes);
  }
  if (block != nullptr) used_bytes_ += bytes;
  return block;
}

void* Recycler::from_kept(std::size_t bytes) {
  auto best = kept_.end();
  for (auto each = kept_.begin(); each != kept_.end(); ++each)
    if (each->bytes >= bytes && (best == kept_.end() || each->bytes <= best->bytes)) best = each;
  if (best == kept_.end()) return nullptr;
  void* block = best->block;
  kept_bytes_ -= bytes;
  if (best->bytes == bytes) {
    kept_.erase(best);
  } else {
    best->block = static_cast<std::byte*>(block) + bytes;
    best->bytes -= bytes;
  }
  return block;
}

Recycler::Kept Recycler::largest_kept() {
  const auto largest =
      std::max_element(kept_.begin(), kept_.end(), [](const Kept& a, const Kept& b) { return a.bytes < b.bytes; });
  if (largest == kept_.end()) return {nullptr, 0};
  const Kept found = *largest;
  kept_.erase(largest);
  kept_bytes_ -= found.bytes;
  return found;
}

void Recycler::give(void* block, std::size_t bytes) noexcept {
  const std::scoped_lock guard(lock);
  used_bytes_ -= bytes;
  try {
    if (unwanted_bytes_ == 0) {
      kept_.push_back({block, bytes});
      kept_bytes_ += bytes;
      return;
    }
  } catch (...) {}
  unwanted_bytes_ -= std::min(unwanted_bytes_, bytes);
  munmap(block, bytes);
}

void Recycler::drop() noexcept {
  const std::scoped_lock guard(lock);
  unmap_above(0);
  most_bytes_ = unwanted_bytes_ = used_bytes_;
}

void Recycler::keep_within(std::size_t bytes) noexcept {
  const std::scoped_lock guard(lock);
  unmap_above(whole_pages(bytes));
}

void Recycler::unmap_above(std::size_t bytes) {
  while (kept_bytes_ > bytes) {
    Kept& oldest = kept_.front();
    const std::size_t less = std::min(kept_bytes_ - bytes, oldest.bytes);
    oldest.bytes -= less;
    munmap(static_cast<std::byte*>(oldest.block) + oldest.bytes, less);
    kept_bytes_ -= less;
    if (oldest.bytes == 0) kept_.erase(kept_.begin());
  }
}

Heap::Block Heap::obtain(std::size_t bytes, Large large) noexcept {
  if (large == Large::recycled) return {recycler_.take(bytes), bytes, large};
  // Not aligned_alloc: until glibc 2.38 a block from it, once freed, does not serve the next request of the same size,
  // and a loop that allocates and frees grows with every turn.
  return {bytes > SIZE_MAX - kAlignment ? nullptr : std::malloc(bytes + kAlignment), bytes, large};
}

void Heap::give_back(const Block& block) noexcept {
  if (block.large == Large::recycled)
    recycler_.give(block.raw, block.size);
  else
    std::free(block.raw);
}

void* Heap::allocate(std::size_t size, Large large) noexcept {
  if (size < kLargeFrom) large = Large::shared;
  const std::size_t bytes = large == Large::shared ? footprint(size) : whole_pages(size);
  if (bytes == 0) return nullptr;
  const Block made = obtain(bytes, large);
  if (made.raw == nullptr) return nullptr;
  void* block = large == Large::shared ? aligned(made.raw) : made.raw;
  try {
    Shard& shard = shard_of(block);
    const std::scoped_lock guard(shard.lock);
    shard.blocks.emplace(block, made);
  } catch (...) {
    give_back(made);
    return nullptr;
  }
  live_bytes_.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  live_blocks_.fetch_add(1, std::memory_order_relaxed);
  return block;
}

bool Heap::release(void* block) noexcept {
  Block found{};
  {
    Shard& shard = shard_of(block);
    const std::scoped_lock guard(shard.lock);
    const auto entry = shard.blocks.find(block);
    if (entry == shard.blocks.end()) return false;
    found = entry->second;
    shard.blocks.erase(entry);
  }
  // Only now, when no table knows it any more, may the same address be handed to someone else.
  give_back(found);
  live_bytes_.fetch_sub(static_cast<std::int64_t>(found.size), std::memory_order_relaxed);
  live_blocks_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void Heap::lock_all() {
  for (Shard& shard : shards_) shard.lock.lock();
  recycler_.lock.lock();
}

void Heap::unlock_all() {
  recycler_.lock.unlock();
  for (Shard& shard : shards_) shard.lock.unlock();
}

Heap& heap() {
  static Heap& process_wide = *new Heap;
  return process_wide;
}

}  // namespace onnxmem::arena
