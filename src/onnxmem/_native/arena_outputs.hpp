// Outputs in pages that their run has done with: moved to an address of their own, not copied, and back when they are
// freed. So an output and the activations that lay there before it never both exist.
#pragma once

#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "arena_pages.hpp"
#include "arena_region.hpp"

namespace onnxmem::arena {

// Pages for a buffer of that size which nothing in a region occupies: as many as there are and are worth it.
std::vector<Pages> free_pages(const Region& region, std::size_t size);

class Outputs {
 public:
  // Memory of that size with these pages of a region that the calling thread runs in, where they are missing from then
  // on. Null where pages cannot be moved.
  void* take(Region& region, const std::vector<Pages>& pages, std::size_t size) noexcept;

  // The same with pages that are free at this moment; null where there are none.
  void* take_free(Region& region, std::size_t size) noexcept;

  // One of that size that was freed and is kept; null if there is none.
  void* reuse(std::size_t size) noexcept;

  // Frees one. Its pages go back where they came from if nobody runs there and nothing came there since; if somebody
  // does run there, they are kept for the next output; otherwise the system gets them. What it had beside them is kept
  // for the next one of its size, which then touches no page anew. False: not one of these.
  bool release(void* block);

  void trim() noexcept;  // unmap what is kept
  std::size_t live_bytes();
  std::size_t live_blocks();

  std::mutex lock;  // held around fork()

 private:
  struct Handed {
    std::size_t bytes;
    std::vector<MovedPages> pieces;
  };
  struct Spare {
    void* block;
    Handed handed;
  };
  // Its address space, and behind the pages that went home those that are its own.
  struct Shell {
    std::byte* block;
    std::size_t bytes, own_bytes;
  };
  void keep_only(std::size_t newest) noexcept;
  void leave(void* block, const Handed& handed) noexcept;  // keeps its shell, if that is worth it
  std::byte* shell_of(std::size_t bytes) noexcept;         // null if none is kept
  void unmap_shells_above(std::size_t bytes) noexcept;

  std::unordered_map<void*, Handed> handed_;
  std::vector<Spare> spares_;  // the oldest first; as many as there were runs when one of them was freed
  // The oldest first. What they have and what is handed out never come to more than was once handed out.
  std::vector<Shell> shells_;
  std::size_t bytes_ = 0, most_bytes_ = 0, shell_bytes_ = 0;
};

// Those of the process. Never destroyed: outputs may be freed after everything else has ended.
Outputs& outputs();

}  // namespace onnxmem::arena
