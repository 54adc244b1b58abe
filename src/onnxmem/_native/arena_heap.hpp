// The heap behind the arenas: whatever no plan has a place for. Every block is known by address, so that freeing a
// pointer that did not come from here is noticed instead of corrupting anything.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace onnxmem::arena {

constexpr std::size_t kAlignment = 64;

// A size rounded up to the alignment, a power of two; 0 if that does not fit.
constexpr std::size_t footprint(std::size_t size, std::size_t alignment = kAlignment) {
  return size > SIZE_MAX - (alignment - 1) ? 0 : (size + alignment - 1) & ~(alignment - 1);
}

std::size_t whole_pages(std::size_t size);

// Mappings that are used again by later requests, a part of them or with more behind them: the outputs of one run after
// the other, the buffers of a recording. What is kept and what is in use never come to more than was once in use at the
// same time, so it takes no more memory than mapping and unmapping, without touching every page anew.
class Recycler {
 public:
  void* take(std::size_t bytes) noexcept;
  void give(void* block, std::size_t bytes) noexcept;
  void keep_within(std::size_t bytes) noexcept;  // unmaps the rest of what is kept, the oldest first
  void drop() noexcept;                          // unmap what is kept, and as much as is in use when it is given back
  std::size_t used_bytes() const { return used_bytes_; }
  std::size_t kept_bytes() const { return kept_bytes_; }
  std::size_t most_bytes() const { return most_bytes_; }

  std::mutex lock;

 private:
  struct Kept {
    void* block;
    std::size_t bytes;
  };
  void* from_kept(std::size_t bytes);  // null if none is large enough
  Kept largest_kept();                 // taken out; a null block if there is none
  void unmap_above(std::size_t bytes);

  std::vector<Kept> kept_;  // the oldest first
  std::size_t kept_bytes_ = 0, used_bytes_ = 0, most_bytes_ = 0, unwanted_bytes_ = 0;
};

// Where a large block comes from. Small ones come from malloc: they share pages.
enum class Large {
  shared,    // malloc
  recycled,  // a mapping of its own, where possible of memory that was freed before
};

class Heap {
 public:
  // Null for size 0, and where the system refuses.
  void* allocate(std::size_t size, Large large) noexcept;

  // False if the block is not one of ours: then nothing was done.
  bool release(void* block) noexcept;

  // Keep no more than that of freed mappings.
  void keep_within(std::size_t bytes) noexcept { recycler_.keep_within(bytes); }

  void trim() noexcept { recycler_.drop(); }
  std::int64_t live_bytes() const { return live_bytes_.load(std::memory_order_relaxed); }
  std::int64_t live_blocks() const { return live_blocks_.load(std::memory_order_relaxed); }

  // Around fork(): a lock that another thread holds at that moment would stay locked in the child for ever.
  void lock_all();
  void unlock_all();

 private:
  struct Block {
    void* raw;  // what malloc returned, somewhere before the aligned block; or the mapping
    std::size_t size;
    Large large;
  };
  struct alignas(64) Shard {
    std::mutex lock;
    std::unordered_map<void*, Block> blocks;
  };

  Shard& shard_of(void* block) { return shards_[(reinterpret_cast<std::uintptr_t>(block) >> 12) % shards_.size()]; }
  Block obtain(std::size_t bytes, Large large) noexcept;
  void give_back(const Block& block) noexcept;

  std::array<Shard, 32> shards_;
  Recycler recycler_;
  std::atomic<std::int64_t> live_bytes_{0}, live_blocks_{0};
};

// The one heap of the process. It is never destroyed: outputs may be freed after everything else has ended.
Heap& heap();

}  // namespace onnxmem::arena
