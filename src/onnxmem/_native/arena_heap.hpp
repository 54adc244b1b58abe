// The heap behind the arenas: whatever no plan has a place for. Every block is known by address, so that freeing a
// pointer that did not come from here is noticed instead of corrupting anything.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace arena {

constexpr std::size_t kAlignment = 64;

// A size rounded up to the alignment; 0 if that does not fit.
constexpr std::size_t footprint(std::size_t size) {
  return size > SIZE_MAX - (kAlignment - 1) ? 0 : (size + kAlignment - 1) & ~(kAlignment - 1);
}

std::size_t whole_pages(std::size_t size);

class Heap {
 public:
  // Null for size 0, and where the system refuses. With `mapped`, a large block gets a mapping of its own: it goes
  // back to the system the moment it is freed, which malloc does not promise.
  void* allocate(std::size_t size, bool mapped) noexcept;

  // False if the block is not one of ours: then nothing was done.
  bool release(void* block) noexcept;

  std::int64_t live_bytes() const { return live_bytes_.load(std::memory_order_relaxed); }
  std::int64_t live_blocks() const { return live_blocks_.load(std::memory_order_relaxed); }

  // Around fork(): a lock that another thread holds at that moment would stay locked in the child for ever.
  void lock_all();
  void unlock_all();

 private:
  struct Block {
    std::size_t size;
    bool mapped;
  };
  struct alignas(64) Shard {
    std::mutex lock;
    std::unordered_map<void*, Block> blocks;
  };

  Shard& shard_of(void* block) { return shards_[(reinterpret_cast<std::uintptr_t>(block) >> 12) % shards_.size()]; }

  std::array<Shard, 32> shards_;
  std::atomic<std::int64_t> live_bytes_{0}, live_blocks_{0};
};

// The one heap of the process. It is never destroyed: outputs may be freed after everything else has ended.
Heap& heap();

}  // namespace arena
