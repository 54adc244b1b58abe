#include "arena_heap.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace arena {

namespace {

// Smaller blocks share pages, so a mapping each would cost more than it gives back.
constexpr std::size_t kMapFrom = 128 * 1024;

void give_back(void* block, std::size_t size, bool mapped) {
  if (mapped)
    munmap(block, size);
  else
    std::free(block);
}

}  // namespace

std::size_t whole_pages(std::size_t size) {
  static const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size > SIZE_MAX - (page - 1) ? 0 : (size + page - 1) / page * page;
}

void* Heap::allocate(std::size_t size, bool mapped) noexcept {
  mapped = mapped && size >= kMapFrom;
  const std::size_t bytes = mapped ? whole_pages(size) : footprint(size);
  if (bytes == 0) return nullptr;
  void* block = nullptr;
  if (mapped) {
    block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return nullptr;
  } else {
    block = std::aligned_alloc(kAlignment, bytes);
    if (block == nullptr) return nullptr;
  }
  try {
    Shard& shard = shard_of(block);
    const std::lock_guard guard(shard.lock);
    shard.blocks.emplace(block, Block{bytes, mapped});
  } catch (...) {
    give_back(block, bytes, mapped);
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
    const std::lock_guard guard(shard.lock);
    const auto entry = shard.blocks.find(block);
    if (entry == shard.blocks.end()) return false;
    found = entry->second;
    shard.blocks.erase(entry);
  }
  // Only now, when no table knows it any more, may the system hand the same address to someone else.
  give_back(block, found.size, found.mapped);
  live_bytes_.fetch_sub(static_cast<std::int64_t>(found.size), std::memory_order_relaxed);
  live_blocks_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void Heap::lock_all() {
  for (Shard& shard : shards_) shard.lock.lock();
}

void Heap::unlock_all() {
  for (Shard& shard : shards_) shard.lock.unlock();
}

Heap& heap() {
  static Heap& process_wide = *new Heap;
  return process_wide;
}

}  // namespace arena
